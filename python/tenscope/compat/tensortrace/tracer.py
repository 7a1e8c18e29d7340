"""ModelTracer: values of a model's methods by path, call by call of the model."""

from __future__ import annotations

import threading

from tenscope._gather import Gatherer, detached_copy, rank
from tenscope._locals import Known, LocalsWatch
from tenscope._modules import unwrap


class ModelTracer:
    def __init__(
        self,
        model,
        variables,
        trace_interval=1,
        gathering_interval=1,
        pre_save_callbacks=(),
        pre_gather_callbacks=(),
        post_gather_callbacks=(),
        post_trace_callbacks=(),
        eval_only=False,
        train_only=False,
    ):
        assert not (eval_only and train_only), "eval_only and train_only exclude each other"
        self.model = unwrap(model)
        self.variables = [variables] if isinstance(variables, str) else list(variables)
        self.current_iteration = 0
        self.rank = rank()
        self._trace_interval = trace_interval
        self._gathering_interval = gathering_interval
        self._pre_save = list(pre_save_callbacks)
        self._post_trace = list(post_trace_callbacks)
        self._mode = {(True, False): False, (False, True): True}.get((bool(eval_only), bool(train_only)))
        self._gatherer = Gatherer(pre_gather_callbacks, post_gather_callbacks)
        self._capturing = threading.local()
        self._known: dict[str, Known] = {}
        self._lock = threading.RLock()
        self._watch: LocalsWatch | None = None
        self._outer_forward = None

    @property
    def results(self):
        return self._gatherer.results

    def __enter__(self) -> ModelTracer:
        self._watch = LocalsWatch(self.model, self.variables, self._save, self._is_capturing)
        self._watch.__enter__()
        self._outer_forward = self.model.__dict__.get("forward")
        inner = self.model.forward

        def forward(*args, **kwargs):
            return self._call(inner, args, kwargs)

        self.model.__dict__["forward"] = forward
        return self

    def __exit__(self, *_) -> None:
        if self._outer_forward is None:
            self.model.__dict__.pop("forward", None)
        else:
            self.model.__dict__["forward"] = self._outer_forward
        self._watch.__exit__()
        for name, series in list(self.results.items()):
            for callback in self._post_trace:
                callback(name, series.values, series.iterations, series.ranks)

    def _call(self, forward, args, kwargs):
        if self._mode is not None and self.model.training != self._mode:
            return forward(*args, **kwargs)
        with self._lock:
            self.current_iteration += 1
            iteration = self.current_iteration
        before = getattr(self._capturing, "iteration", None)
        self._capturing.iteration = iteration if iteration % self._trace_interval == 0 else None
        try:
            result = forward(*args, **kwargs)
        finally:
            self._capturing.iteration = before
        if iteration % self._gathering_interval == 0:
            self._gatherer.gather()
        return result

    def _is_capturing(self) -> bool:
        return getattr(self._capturing, "iteration", None) is not None

    def _save(self, name: str, _scope: str, value: object) -> None:
        iteration = self._capturing.iteration
        with self._lock:
            known = self._known.setdefault(name, Known())
            if not known.is_new(value):
                return
        value = detached_copy(value)
        for callback in self._pre_save:
            value = callback(name, value, iteration)
        with self._lock:
            self._gatherer.add(name, value, iteration)


def trace_model(model, variables, *args, **kwargs):
    """Runs the model once and returns its output and the tracer."""
    with ModelTracer(model, variables) as tracer:
        output = model(*args, **kwargs)
    return output, tracer
