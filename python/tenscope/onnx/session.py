"""tenscope.onnx.Session and record: a model run by ONNX Runtime with its intermediate tensors as further outputs."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from tenscope.errors import RecordingWarning, UsageError
from tenscope.onnx import model as models
from tenscope.onnx.values import Node, checked_feeds, is_recordable, run_session
from tenscope.recording.arrays import storable
from tenscope.recording.calls import calls_of
from tenscope.recording.run import Run, current, init
from tenscope.recording.selectors import NameFilter, tell

_DISABLED = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
_MOST_NAMES = 20  # of what is left out, in a note


class Session:
    """A model whose calls are recorded, called as an onnxruntime.InferenceSession. docs/onnx.md says what is written.

    model             a path, a ModelProto, its bytes, or an InferenceSession made of one of them
    include, exclude  globs over the names of tensors, and over the module paths that they were exported from
    params            the initialisers too, once
    values            "full", or "stats" for statistics only
    chunk             at most so many tensors at a time, each part by a run of its own: less memory, more time
    optimised         record the graph as ONNX Runtime optimises it; by default as it stands in the file
    session_options   onnxruntime.SessionOptions
    providers, provider_options   as an InferenceSession takes them
    run               a Run; the current one by default
    """

    def __init__(
        self,
        model: Any,
        *,
        include=None,
        exclude=None,
        params: bool = True,
        values: str = "full",
        chunk: int | None = None,
        optimised: bool = False,
        session_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        run: Run | None = None,
    ):
        if values not in ("full", "stats"):
            raise UsageError(f'values must be "full" or "stats", not {values!r}')
        if chunk is not None and chunk < 1:
            raise UsageError(f"chunk is the most tensors at a time, 1 or more, not {chunk}")
        if isinstance(model, onnxruntime.InferenceSession) and providers is None:
            providers = model.get_providers()
        self._options = session_options
        if session_options is None:
            self._options = onnxruntime.SessionOptions()
            self._options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        self._where = {"providers": providers or onnxruntime.get_available_providers()}
        if provider_options is not None:
            self._where["provider_options"] = provider_options
        self._model = models.load(model)
        if optimised:
            self._model = models.optimised(self._model, self._options, **self._where)
        self._wanted = NameFilter(include, exclude)
        self._params = params
        self._values = values
        self._run = run
        self._last_run: Any = lambda: None
        names = [name for name, made in self._model.made.items() if self._wanted.wants(name, made.scope)]
        step = chunk or max(len(names), 1)
        self._parts = [names[i : i + step] for i in range(0, len(names), step)] or [[]]
        self._first: onnxruntime.InferenceSession | None = self._session(self._parts[0])
        self._inputs = [Node(node.name, node.type, node.shape) for node in self._first.get_inputs()]
        outputs = self._first.get_outputs()[: len(self._model.outputs)]
        self._outputs = [Node(node.name, node.type, node.shape) for node in outputs]
        self._optional = [node.name for node in self._first.get_overridable_initializers()]

    def get_inputs(self) -> list[Node]:
        return self._inputs

    def get_outputs(self) -> list[Node]:
        return self._outputs

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], run_options: Any = None) -> list[Any]:
        """Records a call and returns the model's outputs, all or those of the names given."""
        inputs = self.check(feeds)
        run = self._run or current() or init()
        calls_of(run).begin(run, self._model.key)
        is_first = self._last_run() is not run
        self._last_run = weakref.ref(run)
        if is_first:
            self._record_parameters(run)
        for name, value in inputs.items():
            if isinstance(value, np.ndarray) and value.dtype.kind not in "OUS" and self._wanted.wants(name):
                self._record(run, name, value, io="input", phase="forward")
        outputs: dict[str, Any] = {}
        for part in self._parts:
            session, self._first = self._first or self._session(part), None
            self._run_part(run, session, part, inputs, outputs, run_options, is_first)
            if len(self._parts) == 1:
                self._first = session
            del session  # before the next is made
        if is_first and self._model.closed:
            self._note(run, self._model.closed, "what happens inside the graphs of If, Loop and Scan nodes is not seen")
        tell(self._wanted.unmatched("tenscope.onnx({}=)"), run.record)
        return [outputs[name] for name in output_names or self._model.outputs]

    def check(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The feeds as arrays; an error says which is missing, unknown, or of another type or shape."""
        return checked_feeds(self._inputs, feeds, self._optional)

    def _session(self, part: list[str]) -> onnxruntime.InferenceSession:
        with _not_optimised(self._options):
            self._model.prepare(self._options)
            data = self._model.bytes_with_outputs(part)
            return onnxruntime.InferenceSession(data, self._options, **self._where)

    def _record_parameters(self, run: Run) -> None:
        if not self._params:
            return
        calls = calls_of(run)
        for name, user, array in self._model.parameters():
            scope = user.scope if user else ""
            if self._wanted.wants(name, scope) and calls.is_new(self._model.key, name, storable(array)[0]):
                self._record(run, name, array, io="param", phase="init", scope=scope, cls=user.cls if user else "")
        if left_out := self._model.parameters_left_out():
            self._note(run, left_out, "initialisers of text, and sparse ones, are not recorded")

    def _run_part(self, run, session, part: list[str], inputs, outputs: dict[str, Any], run_options, is_first) -> None:
        types = {node.name: node.type for node in session.get_outputs()}
        results = self._model.outputs
        left_out = [f"{name} ({types[name]})" for name in part if not is_recordable(types[name])]
        fetched = list(dict.fromkeys([*results, *(name for name in part if is_recordable(types[name]))]))
        values = run_session(session, fetched, inputs, run_options)
        for name in results:
            if name in outputs and not _is_same(outputs[name], values[name]):
                reason = "its runs for the parts (chunk=) gave different outputs: the parts do not belong to one run"
                warnings.warn(f"tenscope.onnx: {name!r}: {reason}", RecordingWarning, stacklevel=4)
                run.record("determinism", kind="note", site="", meta={"outputs": name, "reason": reason})
            outputs.setdefault(name, values[name])
        for name in part:
            if is_recordable(types[name]):
                made = self._model.made[name]
                io = "output" if name in results else None
                where = {"scope": made.scope, "cls": made.cls, "site": made.site, "meta": made.meta()}
                self._record(run, name, values.pop(name), io=io, phase="forward", **where)
        if is_first and left_out:
            self._note(run, left_out, "texts, sequences, maps and optional values are not recorded")

    def _record(self, run: Run, name: str, array: np.ndarray, *, site: str = "", meta=None, **where: Any) -> None:
        array, dtype = storable(array)
        if dtype:
            meta = {**(meta or {}), "dtype": dtype}
        run.record(name, array, site=site, meta=meta, values=self._values, **where)

    def _note(self, run: Run, names: list[str], reason: str) -> None:
        run.record(
            "not_seen",
            kind="note",
            site="",
            meta={"reason": reason, "count": len(names), "names": names[:_MOST_NAMES]},
        )


def record(model: Any, feeds: Mapping[str, Any], **options: Any) -> list[Any]:
    """Runs a model once, records it, and returns its outputs. Options as of Session, which is for several calls."""
    return Session(model, **options).run(None, feeds)


@contextlib.contextmanager
def _not_optimised(options: onnxruntime.SessionOptions) -> Iterator[None]:
    before = options.graph_optimization_level
    options.graph_optimization_level = _DISABLED
    try:
        yield
    finally:
        options.graph_optimization_level = before


def _is_same(a: Any, b: Any) -> bool:
    return not isinstance(a, np.ndarray) or (a.shape == b.shape and a.tobytes() == b.tobytes())
