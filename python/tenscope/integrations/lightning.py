"""Lightning's Trainer: `Trainer(callbacks=[TenscopeCallback("runs", on_nan=True)])`, of `lightning` or of
`pytorch_lightning`, whichever the program has imported."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tenscope.integrations.steps import StepRecorder


def _callback_class() -> type:
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("tenscope.integrations.lightning needs lightning or pytorch_lightning")


class TenscopeCallback(_callback_class()):
    """Records training under Lightning's `global_step`. Options as of `tenscope.integrations.StepRecorder`.

    The loss is what `training_step` returns.
    """

    def __init__(self, base: Any = "runs", **options: Any):
        super().__init__()
        self.steps = StepRecorder(base, **options)

    def on_train_start(self, trainer, pl_module) -> None:
        self.steps.start(pl_module)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        self.steps.begin(trainer.global_step)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.steps.end(outputs)

    def on_train_end(self, trainer, pl_module) -> None:
        self.steps.finish()

    def on_exception(self, trainer, pl_module, exception) -> None:
        self.steps.finish(exception)
