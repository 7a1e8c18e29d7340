"""Reading a run back: `tenscope.open(path)` gives a Recording."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tenscope import _core, remote
from tenscope.errors import NotFoundError, UsageError
from tenscope.reading import frames, page, show
from tenscope.reading.sources import Sources
from tenscope.reading.tensor import Tensor, from_bytes
from tenscope.recording.registry import entry_named


def open(path: str | os.PathLike[str] = "runs", *, storage_options: dict[str, Any] | None = None) -> Recording:
    """Opens a run's folder, or the newest run in a folder of runs; finished, running or crashed.

    A URL (`s3://bucket/runs/a`) is read through fsspec and a local cache (docs/parallel.md); `storage_options` are
    those of fsspec's file system: keys, an endpoint.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"open takes the folder of a run, or of runs, not {path!r}")
    place = remote.place_of(path, storage_options)
    with remote.reading(place):
        return Recording(_core.Reader(place.path), place=place)


@dataclass(frozen=True)
class Stats:
    """Statistics of a tensor's elements, as `event.stats` gives them. Exact for integers.

    count, zero, subnormal       how many elements there are, are zero, are too small for full precision
    nan, pos_inf, neg_inf        how many are not finite
    min, max, mean, std, l2      over the finite elements; NaN where there is none
    abs_max                      the largest magnitude of a finite element
    """

    count: int
    min: float
    max: float
    mean: float
    std: float
    l2: float
    abs_max: float
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int
    subnormal: int


class Event:
    """One event of a recording: a value, a call's begin or end, a change, a note.

    `for event in run.find("loss", step=3): print(event.value, event.site, event.stats)`. An event is read from the
    journal when it is asked for something, so that a million of them may be held. What an event does not have (the
    `dtype` of a text, the `scope` of a value that was recorded by hand) is None or empty.
    """

    __slots__ = ("_cached", "_reader", "id")

    def __init__(self, reader: _core.Reader, id: int) -> None:
        self._reader = reader
        self.id = id
        self._cached: _core.EventRecord | None = None

    @property
    def _record(self) -> _core.EventRecord:
        if self._cached is None:
            self._cached = self._reader.event(self.id)
        return self._cached

    kind: str = property(
        lambda self: self._reader.kind(self.id), doc="value, enter, exit, change, step, note or dropped"
    )
    name: str = property(lambda self: self._reader.name(self.id), doc="the name it was recorded under")
    step: int = property(lambda self: self._reader.step(self.id), doc="the step it belongs to, from 0")
    call: int = property(lambda self: self._reader.call(self.id), doc="which event of this name in its step, from 0")
    is_tensor: bool = property(lambda self: self._reader.is_tensor(self.id), doc="whether its value is a tensor")
    writer: str = property(lambda self: self._writer.folder, doc="the folder of the process that wrote it")
    rank: int = property(lambda self: self._writer.rank, doc="the rank of that process")
    seq: int = property(lambda self: self._record.seq, doc="its number among the events of that process")
    time_ns: int = property(lambda self: self._record.time_ns, doc="when it was recorded, in ns since 1970")
    thread: int = property(lambda self: self._record.thread, doc="the thread that recorded it")
    site: str = property(lambda self: self._record.site, doc="the source line that it was recorded at, file.py:12")
    scope: str = property(lambda self: self._record.scope, doc="the module or function that it happened in")
    io: str = property(lambda self: self._record.io, doc="input, output, grad, param, buffer, loss, local ... or empty")
    phase: str = property(lambda self: self._record.phase, doc="init, forward, backward, optimizer or empty")
    root: str = property(lambda self: self._record.root, doc="the outermost module, GPT#0")
    cls: str = property(lambda self: self._record.cls, doc="the class of the module")
    task: str = property(lambda self: self._record.task, doc="the asyncio task that recorded it")

    @property
    def _writer(self) -> _core.WriterInfo:
        return self._reader.writer_of(self.id)

    @property
    def time(self) -> datetime:
        """When it was recorded, in UTC."""
        return datetime.fromtimestamp(self.time_ns / 1e9, timezone.utc)

    @property
    def meta(self) -> dict[str, Any]:
        """What else was noted of it: the `meta` of `record`, and what probes add (docs/format.md)."""
        return json.loads(self._record.meta) if self._record.meta else {}

    @property
    def value(self) -> Any:
        """A Tensor, or the number, text or None that was recorded. An empty dict, list or tuple comes back as such."""
        if self.is_tensor:
            return self.tensor()
        if not self._record.has_value:
            return {"dict": {}, "list": [], "tuple": ()}.get(self.meta.get("empty", ""))
        return self._record.value

    def tensor(self) -> Tensor:
        """Its tensor: a view of the bytes in the file. UsageError where it has none, NotFoundError where the bytes are
        not kept."""
        tensor = self._tensor_record
        return from_bytes(self._reader.bytes(self.id), tensor.dtype, tensor.shape)

    def whole(self) -> Tensor:
        """Of a tensor that is spread over ranks, this part and those of the other ranks together."""
        if "shard" not in self.meta:
            return self.tensor()
        return from_bytes(*self._reader.whole(self.id))

    def torch(self) -> Any:
        """Its tensor as a torch tensor, a copy."""
        return self.tensor().torch()

    @property
    def _tensor_record(self) -> _core.TensorRecord:
        tensor = self._record.tensor
        if tensor is None:
            raise UsageError(f"no tensor: {self!r}")
        return tensor

    @property
    def dtype(self) -> str | None:
        """The tensor's type: "float32", "bfloat16" ..."""
        return self._record.tensor.dtype if self.is_tensor else None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The tensor's shape."""
        return self._record.tensor.shape if self.is_tensor else None

    @property
    def device(self) -> str | None:
        """The device that the tensor was on."""
        return (self._record.tensor.device or "cpu") if self.is_tensor else None

    @property
    def fingerprint(self) -> str | None:
        """XXH3-128 of the tensor's bytes, 32 hex digits: equal ones are equal tensors."""
        return self._record.tensor.fingerprint if self.is_tensor else None

    @property
    def stats(self) -> Stats | None:
        """Statistics of the tensor's elements, also where its bytes were not kept."""
        return Stats(**self._record.tensor.stats) if self.is_tensor else None

    @property
    def sketch(self) -> tuple[float, ...] | None:
        """64 signed sums of the elements, from which the distance of two tensors is estimated (docs/format.md)."""
        return self._reader.sketch(self.id) if self.is_tensor else None

    @property
    def stored(self) -> bool:
        """Whether its bytes were kept; else there are statistics only."""
        return self.is_tensor and self._record.tensor.has_bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self._reader is other._reader and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self._reader), self.id))

    def __repr__(self) -> str:
        return f"<{show.event_line(self)}>"

    def _repr_html_(self) -> str:
        return show.event_html(self)


class Recording:
    """A run that is read, as `tenscope.open` gives it: `run["name", step, call]`; fewer indices mean the latest value.

    Steps count from 0; a negative step counts from the last one back, and a slice of steps gives them stacked. Where
    several ranks recorded a name the lowest answers: `run.rank(2)["name"]` asks another. Of a tensor that is spread
    over ranks (a DTensor, `tenscope.shard`) `run["name"]` is the whole and `run.rank(2)["name"]` a part. A name that
    stands for a nest (`out` for `out.logits` and `out.cache.0`) gives it rebuilt of dicts and lists.
    """

    def __init__(self, reader: _core.Reader, rank: int | None = None, place: remote.Place | None = None) -> None:
        self._reader = reader
        self._rank = rank
        self._place = place

    # What there is.

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._reader.path

    @property
    def url(self) -> str | None:
        """Where a run lies that was opened by its URL; `path` is then its mirror in the cache."""
        is_remote = self._place is not None and self._place.mirror is not None
        return self.shown(str(self.path)) if is_remote else None

    def shown(self, text: str) -> str:
        """A text with the run's URL in it instead of the path of its mirror."""
        return text if self._place is None else self._place.shown(text)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What run.json says: start, host, command."""
        return json.loads(self._reader.run_json or "{}")

    @cached_property
    def sources(self) -> Sources:
        """The sources of the code that was recorded: a mapping from file to text, as the program ran it."""
        return Sources(self._reader)

    @property
    def writers(self) -> list[_core.WriterInfo]:
        """The processes that recorded it: folder, rank, how each ended."""
        return [w for w in self._reader.writers if self._rank in (None, w.rank)]

    @property
    def ranks(self) -> list[int]:
        """The ranks that recorded it."""
        return sorted({writer.rank for writer in self.writers})

    @property
    def problems(self) -> list[_core.Problem]:
        """Damage and losses found while reading; everything else is still read."""
        return self._reader.problems

    @property
    def losses(self) -> list[_core.Loss]:
        """What was not kept, by reason; `is_limit` where a limit asked for it, such as max_bytes."""
        folders = {writer.folder for writer in self.writers}
        return [loss for loss in self._reader.losses if self._rank is None or loss.writer in folders]

    @property
    def state(self) -> str:
        """running, closed, failed (with the exception's class), crashed, repaired or empty."""
        return _core.state_text(self.writers)

    @property
    def closed(self) -> bool:
        """Whether every writer ended in order. False while it runs, and after a crash."""
        return bool(self.writers) and all(writer.closed for writer in self.writers)

    def rank(self, rank: int) -> Recording:
        """The same run as one rank saw it."""
        if rank not in self._known_ranks:
            raise NotFoundError(f"no rank {rank}, there are {self.ranks}: {self.path}")
        return Recording(self._reader, rank, self._place)

    @cached_property
    def _known_ranks(self) -> frozenset[int]:
        return frozenset(writer.rank for writer in self._reader.writers)

    def names(self, pattern: str = "*") -> list[str]:
        """The names of values, in order of first appearance; * and ? match as in file names."""
        if not isinstance(pattern, str):
            raise TypeError(f"a pattern of names is text, not {pattern!r}")
        if pattern == "*" and self._rank is None:
            return self._reader.names()
        found = dict.fromkeys(e.name for e in self.find(pattern) if e.kind in ("value", "change"))
        return list(found)

    def steps(self, name: str = "") -> list[int]:
        """The steps of the run, or those that have this name."""
        if self._rank is None:
            return self._reader.steps(name)
        return sorted({e.step for e in self.find(name or "*") if not name or e.name == name})

    def __len__(self) -> int:
        return len(self._reader) if self._rank is None else len(self._reader.find(rank=self._rank))

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def __contains__(self, name: str) -> bool:
        return bool(self._candidates(name, None, None))

    def events(
        self, name: str = "", *, step: int | None = None, call: int | None = None, kind: str | None = None
    ) -> Iterator[Event]:
        """The events in order of writer and time; `name` is a glob."""
        if not isinstance(name, str):
            raise TypeError(f"a name, or a pattern of names, is text, not {name!r}")
        step, call = _number("step", step), _number("call", call)
        if self._rank is None and not name and step is None and call is None and kind is None:
            return (Event(self._reader, id) for id in range(len(self._reader)))
        ids = self._reader.find(name, step, call, self._rank, kind)
        return (Event(self._reader, id) for id in ids)

    def find(
        self, name: str = "", *, step: int | None = None, call: int | None = None, kind: str | None = None
    ) -> list[Event]:
        """As events(), as a list."""
        return list(self.events(name, step=step, call=call, kind=kind))

    # One value.

    def __getitem__(self, key: str | tuple) -> Any:
        name, step, call = _split(key)
        if isinstance(step, slice):
            return self.stack(name, steps=self._sliced(name, step), call=call)
        try:
            event = self.event(name, step, call)
        except NotFoundError:
            leaves, nest = self._nest(name, step, call)
            if nest is None:
                raise
            return _revived(name, leaves[0].meta, nest)
        if self._rank is None and '"shard"' in event._record.meta and len(self.ranks) > 1:
            return event.whole()
        return _revived(name, event.meta if "at" in event._record.meta else {}, event.value)

    def event(self, name: str, step: int | None = None, call: int | None = None) -> Event:
        """The event behind run[name, step, call]."""
        found = self._candidates(name, self._absolute(name, step), call)
        if not found:
            raise NotFoundError(self._missing(name, step, call))
        return found[-1]

    def _absolute(self, name: str, step: int | None) -> int | None:
        if step is None or step >= 0:
            return step
        steps = self.steps(name)
        if len(steps) < -step:
            raise NotFoundError(f"no step {step} of {name}, it has {len(steps)}: {self.path}")
        return steps[step]

    def _sliced(self, name: str, which: slice) -> list[int]:
        steps = self.steps(name)
        start, stop = (None if s is None else self._absolute(name, s) for s in (which.start, which.stop))
        chosen = [s for s in steps if (start is None or s >= start) and (stop is None or s < stop)]
        return chosen[:: which.step] if which.step else chosen

    def _candidates(self, name: str, step: int | None, call: int | None) -> list[Event]:
        """The values of exactly this name, by the first writer of the lowest rank that has any, oldest first."""
        found = [
            id
            for id in self._reader.find(name, step, call, self._rank)
            if self._reader.name(id) == name and self._reader.kind(id) in ("value", "change")
        ]
        if not found:
            return []
        first = min(self._reader.writer(id) for id in found)  # they are in the order of ranks
        events = [Event(self._reader, id) for id in found if self._reader.writer(id) == first]
        return sorted(events, key=lambda e: (e.step, e.call)) if step is None else events

    def _nest(self, name: str, step: int | None, call: int | None) -> tuple[list[Event], Any]:
        """What lies below a dotted name: its events and the nest of their values; None where there is nothing."""
        prefix = name + "."
        names = [n for n in self.names(f"{prefix}*") if n.startswith(prefix)]
        step = (
            max((e.step for n in names for e in self._candidates(n, None, call)), default=None)
            if step is None
            else step
        )
        leaves = {}
        for full in names:
            found = self._candidates(full, None if step is None else self._absolute(full, step), call)
            if found:
                leaves[full.removeprefix(prefix)] = found[-1]
        return list(leaves.values()), (_nested(leaves) if leaves else None)

    def _missing(self, name: str, step: int | None, call: int | None) -> str:
        if name in self:
            steps = self.steps(name)
            if step is not None and step not in steps:
                return f"no step {step} of {name}, it has {show.ranges(steps)}: {self.path}"
            return f"no call {call} of {name} in step {step}: {self.path}"
        close = _core.nearest(name, self.names())
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        lost = "".join(f"; {loss}" for loss in self.losses if loss.events)
        return f"no value named {name}{hint}: {self.path}{lost}"

    # Many values.

    def stack(self, name: str, *, steps: Iterable[int] | None = None, call: int | None = None) -> np.ndarray:
        """A name's values over steps as one array: (steps, *shape), with several ranks (ranks, steps, *shape)."""
        ranks = [run for run in map(self.rank, self.ranks) if run._candidates(name, None, call)]
        if not ranks:
            raise NotFoundError(self._missing(name, None, call))
        chosen = self.steps(name) if steps is None else list(steps)
        rows = [[np.asarray(run[name, step, call]) for step in chosen] for run in ranks]
        shapes = {value.shape for row in rows for value in row}
        if len(shapes) > 1:
            raise UsageError(f"cannot stack {name}: its shapes differ, {' and '.join(map(str, sorted(shapes)))}")
        stacked = np.array(rows)
        return stacked[0] if len(ranks) == 1 else stacked

    def frame(self) -> Any:
        """All events as a pandas DataFrame, a row each (docs/frames.md)."""
        return frames.frame(_core.event_columns(self._reader, self._rank))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All events as a stream of Arrow's C interface, for pyarrow, Polars, DuckDB, pandas (docs/frames.md)."""
        return _core.arrow_stream(self._reader, rank=self._rank, requested=requested_schema)

    def __arrow_c_schema__(self) -> object:
        return _core.arrow_schema()

    def __repr__(self) -> str:
        return show.recording_text(self)

    def _repr_html_(self) -> str:
        return show.recording_html(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        if len(self._reader) > page.LONGEST_RUN:
            return {"text/plain": repr(self), "text/html": self._repr_html_()}
        place = remote.Place(self.path, self._place.mirror if self._place is not None else None)

        def make() -> str:
            with remote.reading(place):
                return page.of_runs(place, None, page.IN_A_NOTEBOOK)

        return page.bundle(repr(self), make)


def _split(key: str | tuple) -> tuple[str, Any, int | None]:
    parts = key if isinstance(key, tuple) else (key,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], str):
        raise UsageError("index a recording as run[name], run[name, step] or run[name, step, call]")
    name, step, call = (*parts, None, None)[:3]
    return name, step if isinstance(step, slice) else _number("step", step), _number("call", call)


def _number(what: str, value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"a {what} is an int, not {value!r}") from None


def _revived(name: str, meta: dict[str, Any], value: Any) -> Any:
    """The object of a registered type whose value was recorded under that name; else the value."""
    entry = entry_named(meta.get("type", "")) if meta.get("at") == name else None
    return entry.from_value(value) if entry is not None and entry.from_value is not None else value


def _nested(leaves: dict[str, Event]) -> Any:
    """Dicts of the dotted names, and lists where the keys are 0, 1, 2, ..."""
    tree: dict[str, Any] = {}
    for name, event in leaves.items():
        *path, last = name.split(".")
        node = tree
        for part in path:
            inner = node.setdefault(part, {})
            node = inner if isinstance(inner, dict) else node
        node[last] = event
    return _listed(tree)


def _listed(node: Any) -> Any:
    if isinstance(node, Event):
        return node.value
    if list(node) == [str(i) for i in range(len(node))]:
        return [_listed(inner) for inner in node.values()]
    return {key: _listed(inner) for key, inner in node.items()}
