"""The order in which modules finish their forward."""

from __future__ import annotations

import logging
import weakref
from pathlib import Path

from torch import nn

from ._base import BaseDebugger

logger = logging.getLogger(__name__)


class CallTracer(BaseDebugger):
    def __init__(self, output_dir, enabled: bool = True):
        super().__init__(output_dir, enabled)
        self.call_trace: list[str] = []
        self.hooks: list = []

    def register_hooks(self, model, target_classes=(nn.Module,), target_names=None, exclude_names=None) -> None:
        for module in self._register(model, target_classes, target_names, exclude_names):
            hook = _Hook(self, self.get_module_path(module))
            self.hooks.append(module.register_forward_hook(hook))

    def save_trace(self, filename: str = "call_trace.txt") -> Path:
        path = self.output_dir / filename
        path.write_text("".join(f"{line}\n" for line in self.call_trace))
        logger.info("Saved a trace of %d calls to %s", len(self.call_trace), path)
        return path

    def get_trace(self) -> list[str]:
        return list(self.call_trace)

    def reset_trace(self) -> None:
        self.call_trace.clear()

    def remove_hooks(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()

    def __enter__(self) -> CallTracer:
        self.enabled = True
        self.reset_trace()
        return self

    def __exit__(self, *_) -> None:
        pass

    def __del__(self):
        for hook in getattr(self, "hooks", ()):
            hook.remove()


class _Hook:
    """Does not keep its tracer alive; a copy of the model, or a pickled one, is not traced."""

    def __init__(self, tracer: CallTracer | None, path: str):
        self._tracer = weakref.ref(tracer) if tracer is not None else lambda: None
        self._path = path

    def __call__(self, module, inputs, output) -> None:
        tracer = self._tracer()
        if tracer is not None and tracer.enabled:
            tracer.call_trace.append(self._path)

    def __deepcopy__(self, _) -> _Hook:
        return _Hook(None, self._path)

    def __reduce__(self):
        return _Hook, (None, self._path)
