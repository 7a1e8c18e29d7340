"""A training loop, step by step: all of it, each N-th step, or the last steps before something went wrong.

Overview. A `StepRecorder` owns a run and a trace of the model. With `every` the trace is on in the steps that are
wanted and off in between. With `on_nan` or `on_spike` it is a flight recorder: every step goes into a ring that drops
the oldest, and what is in the ring is kept when the loss is NaN or infinite, when it leaps, or when the program fails;
else it is removed. The ring is as large as `last` steps need, which the first step tells; several ranks cannot agree on
that without waiting for each other, and take `max_bytes`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import deque
from pathlib import Path
from typing import Any

import torch

from tenscope.errors import UsageError
from tenscope.launch.autoprobe import settings_in_force
from tenscope.probes.trace import trace
from tenscope.reading.recording import open as open_run
from tenscope.recording import ranks
from tenscope.recording.endings import note_ending
from tenscope.recording.replace import remove_run
from tenscope.recording.run import Run
from tenscope.recording.say import say, shown_path

_SMALLEST_RING_BYTES = 4 << 20
_RING_OF_A_RANK_BYTES = 1 << 30
_USUAL_LOSSES = 50
_FEWEST_LOSSES = 5


class StepRecorder:
    """Call `start(model)`, then `begin(number)` and `end(loss)` around each step, then `finish()`; or use it as a
    context manager, which finishes.

    base, name   the run's folder, as of `tenscope.init`
    every        only each N-th step
    on_nan       keep the last steps when the loss is NaN or infinite
    on_spike     keep them when the loss is more than so many times the median of the last 50
    last         how many steps are kept at least, the one that went wrong included
    max_bytes    size of the ring, instead of `last`
    Other options as of `tenscope.trace`; by default inputs, outputs, gradients, parameters and their updates.
    """

    def __init__(
        self,
        base: str | os.PathLike[str] = "runs",
        *,
        name: str = "",
        every: int = 1,
        on_nan: bool = False,
        on_spike: float | None = None,
        last: int = 8,
        max_bytes: int = 0,
        **options: Any,
    ):
        if every < 1 or last < 1:
            raise UsageError("every and last are 1 or more")
        if on_spike is not None and on_spike <= 1:
            raise UsageError(f"on_spike is a factor above 1, not {on_spike}")
        if every > 1 and (on_nan or on_spike):
            raise UsageError("every keeps steps, on_nan and on_spike the last ones: use two recorders for both")
        if max_bytes and not (on_nan or on_spike):
            raise UsageError("max_bytes is the size of the ring: it goes with on_nan or on_spike")
        self.run: Run | None = None
        self.kept: list[Path] = []  # the runs that are left when it is over
        self._base, self._name, self._every, self._last = base, name, every, last
        self._on_nan, self._on_spike = on_nan, on_spike
        self._ring_bytes = max_bytes  # 0: not known yet
        self._options = {"grads": True, "param_grads": True, "params": True, **options}
        self._model: torch.nn.Module | None = None
        self._trace: trace | None = None
        self._step: int | None = None
        self._is_wanted = False
        self._losses: deque[float] = deque(maxlen=_USUAL_LOSSES)
        self._is_over = False

    @property
    def _is_ring(self) -> bool:
        """Not under `tenscope run`, which records all steps by itself, into one run with this."""
        return (self._on_nan or self._on_spike is not None) and not (self.run is not None and self.run.held)

    def start(self, model: torch.nn.Module) -> None:
        self._model = model
        self._is_over = False

    def begin(self, number: int) -> None:
        """The step of this number begins. Said again of the same step (gradients are accumulated), it does nothing."""
        if self._is_over or self._model is None or number == self._step:
            return
        self._step = number
        self._is_wanted = number % self._every == 0
        if not self._is_wanted:
            self._stop_tracing()
            return
        if self.run is None:
            self._open()
        self.run.step(number)
        if self._trace is None and not self.run.held:
            self._trace = trace(self._model, run=self.run, **self._options)
            self._trace.__enter__()

    def end(self, loss: Any = None) -> None:
        """The step is over; its loss, where there is one, is recorded and judged."""
        if self.run is None or not self._is_wanted:
            return
        value = _number(loss)
        if value is not None and not self.run.held:
            self.run.record("loss", value)
        if not self._is_ring:
            return
        why = self._what_is_wrong(value)
        if why:
            self._keep(why, value)
        elif not self._ring_bytes:
            self._open_ring()

    def finish(self, error: BaseException | None = None) -> None:
        """The loop is over. Of a flight recorder without an event nothing is left, unless an error ended the loop."""
        self._stop_tracing()
        is_ring = self._is_ring
        run, self.run = self.run, None
        self._is_over = True
        if run is None:
            return
        note_ending(run, error)
        run.close()
        if is_ring and error is None and run.world_size == 1:
            remove_run(run.path)
        else:
            self.kept.append(run.path)

    def __enter__(self) -> StepRecorder:
        return self

    def __exit__(self, error_type: Any, error: BaseException | None, traceback: Any) -> None:
        self.finish(error)

    def _open(self) -> None:
        """Without a budget where the ring's is not known yet: the first step tells."""
        if self._is_ring and not self._ring_bytes and ranks.here()[1] > 1:
            self._ring_bytes = _RING_OF_A_RANK_BYTES
        ring = {"max_bytes": self._ring_bytes, "keep": "last"} if self._ring_bytes else {}
        self.run = Run(self._base, name=self._name, **ring)
        if not self.run.held:
            for name, settings in settings_in_force().items():
                self.run.record(name, kind="note", phase="init", site="", meta=json.dumps(settings))

    def _open_ring(self) -> None:
        self._stop_tracing()
        self.run.close()
        # Of a ring some quarter is being written, and the oldest goes a segment at a time.
        self._ring_bytes = max(_SMALLEST_RING_BYTES, 2 * (self._last + 1) * _bytes_of(self.run.path))
        remove_run(self.run.path)
        self._open()

    def _stop_tracing(self) -> None:
        if self._trace is not None:
            self._trace.__exit__(None, None, None)
            self._trace = None

    def _what_is_wrong(self, loss: float | None) -> str:
        if loss is None:
            return ""
        if not math.isfinite(loss):
            return f"the loss is {loss}" if self._on_nan else ""
        usual = statistics.median(self._losses) if len(self._losses) >= _FEWEST_LOSSES else math.inf
        self._losses.append(loss)
        if self._on_spike is not None and 0 < usual < math.inf and loss > self._on_spike * usual:
            return f"the loss is {loss:.6g}, and was about {usual:.6g}"
        return ""

    def _keep(self, why: str, loss: float | None) -> None:
        """What is in the ring stays. A next event is waited for where the loss can still be judged."""
        self._stop_tracing()
        run, self.run = self.run, None
        run.record("kept_because", why, meta={"step": self._step, "loss": str(loss)})
        run.close()
        self.kept.append(run.path)
        folder = shown_path(run.path)
        say(f"step {self._step}: {why}; the last steps are kept in {folder}: tenscope check {folder}")
        is_alone = ranks.here()[1] == 1  # others, whose losses are their own, would not open a next run with this one
        self._is_over = not (is_alone and loss is not None and math.isfinite(loss))


def _number(loss: Any) -> float | None:
    if isinstance(loss, dict):
        loss = loss.get("loss")
    if loss is None:
        return None
    try:
        return float(loss.detach()) if isinstance(loss, torch.Tensor) else float(loss)
    except (TypeError, ValueError, RuntimeError):  # not one number
        return None


def _bytes_of(run: Path) -> int:
    """What the recorded tensors take, and some hundred bytes for the line of each."""
    total = 0
    for event in open_run(run):
        total += 1000
        if event.shape is not None:
            total += math.prod(event.shape) * getattr(torch, event.dtype).itemsize
    return total

