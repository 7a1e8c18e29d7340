"""transformers' Trainer: `Trainer(..., callbacks=[TenscopeCallback("runs", on_nan=True)])`."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from tenscope.integrations.steps import StepRecorder


class TenscopeCallback(TrainerCallback):
    """Records training under the Trainer's own step numbers, as its logs and checkpoints have them.

    Options as of `tenscope.integrations.StepRecorder`. The loss is the model's own (`output.loss`). Of batches whose
    gradients are accumulated it is the sum where each is a part of the step's (the model was told how many items the
    step has), else the mean, as the Trainer has it.
    """

    def __init__(self, base: Any = "runs", **options: Any):
        self.steps = StepRecorder(base, **options)
        self._losses: list[torch.Tensor] = []
        self._are_parts = False
        self._hook: Any = None

    def on_train_begin(self, args, state, control, model=None, **_: Any) -> None:
        self.steps.start(model)
        self._hook = model.register_forward_hook(self._take_loss, with_kwargs=True)

    def on_step_begin(self, args, state, control, **_: Any) -> None:
        self._losses.clear()
        self.steps.begin(state.global_step + 1)  # as it is counted when the step is over

    def on_step_end(self, args, state, control, **_: Any) -> None:
        losses = torch.stack(self._losses) if self._losses else None
        self.steps.end(losses if losses is None else losses.sum() if self._are_parts else losses.mean())

    def on_train_end(self, args, state, control, **_: Any) -> None:
        self.steps.finish()
        if self._hook is not None:
            self._hook.remove()

    def _take_loss(self, module: torch.nn.Module, _inputs: Any, named: dict[str, Any], output: Any) -> None:
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if module.training and isinstance(loss, torch.Tensor):
            self._losses.append(loss.detach().float().mean())
            self._are_parts = named.get("num_items_in_batch") is not None
