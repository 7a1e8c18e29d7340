"""One call of a module as a run recorded it: what it was built of, what went in and what came out, and the parameters
and buffers that were in force then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenscope import _core
from tenscope.metadata.repro import Trouble
from tenscope.reading.recording import Event, Recording
from tenscope.reading.recording import open as open_run
from tenscope.reading.show import ranges

_SETTINGS = ("determinism", "precision", "backends", "threads")
_TOLD = ('"build"', '"uncalled"', '"given"', '"changed"', '"gone"')  # in the meta of module calls


@dataclass
class RecordedCall:
    run: Path
    root: str
    path: str
    enter: Event
    exit: Event
    inputs: dict[str, Event] = field(default_factory=dict)  # by name below the module: input.0
    outputs: dict[str, Event] = field(default_factory=dict)
    state: dict[str, Event] = field(default_factory=dict)  # parameters and buffers of all modules, by their full names
    builds: dict[str, dict] = field(default_factory=dict)  # by path; what each module is built of
    training: dict[str, bool] = field(default_factory=dict)  # by path
    sites: dict[str, str] = field(default_factory=dict)  # by path: where its forward begins
    objects: dict[int, dict] = field(default_factory=dict)  # which builds refer to as `same`
    given: dict | int | None = None  # how the arguments are nested
    settings: dict[str, dict] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)  # the texts that the run kept, by file

    @property
    def raised(self) -> str:
        return self.exit.meta.get("raised", "")


def find_call(
    folder: Path, path: str, step: int | None = None, index: int | None = None, rank: int | None = None
) -> RecordedCall:
    recording = open_run(folder)
    if rank is not None:
        recording = recording.rank(rank)
    enter = _find_enter(recording, path, step, index)
    return _Scan(recording, enter).call


def split_root(path: str) -> tuple[str | None, str]:
    """`GPT#0.blocks.3` names the outermost module too; "." is the outermost module itself."""
    first, _, rest = path.partition(".")
    if "#" in first:
        return first, rest
    return None, "" if path == "." else path


def _find_enter(recording: Recording, path: str, step: int | None, index: int | None) -> Event:
    root, inner = split_root(path)
    ids = recording._reader.find("", None, None, recording._rank, "enter")
    calls = [Event(recording._reader, id) for id in ids if recording._reader.name(id) == inner]
    calls = [event for event in calls if event.root and root in (None, event.root)]
    if not calls:
        raise Trouble(_no_such_module(recording, path, ids))
    calls = [event for event in calls if event.writer == calls[0].writer]  # of the lowest rank
    roots = list(dict.fromkeys(event.root for event in calls))
    if len(roots) > 1:
        named = " or ".join(f"{each}.{inner}" if inner else each for each in roots)
        raise Trouble(f"several modules have this path; name one of them, --call {named}: {recording.path}")
    if step is not None:
        at_step = [event for event in calls if event.step == step]
        if not at_step:
            has = ranges(sorted({event.step for event in calls}))
            raise Trouble(f"{path} was not called in step {step}; it was in {has}: {recording.path}")
        calls = at_step
    if index is not None:
        of_index = [event for event in calls if event.call == index]
        if not of_index:
            within = "" if step is None else f" of step {step}"
            has = ranges(sorted({event.call for event in calls}))
            raise Trouble(f"{path} has no call {index}{within}; it has {has}: {recording.path}")
        calls = of_index
    return calls[0]


def _no_such_module(recording: Recording, path: str, ids: list[int]) -> str:
    events = (Event(recording._reader, id) for id in ids)
    known = list(dict.fromkeys(event.name or event.root for event in events if event.root))
    if not known:
        return f"no call of a module was recorded: {recording.path}"
    near = _core.nearest(path, known, 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; the first that is there is {known[0]}"
    return f"no call of a module {path} was recorded{hint}: {recording.path}"


class _Scan:
    """Two passes over a writer's events, from its first to the end of the call: what modules are, then their values."""

    def __init__(self, recording: Recording, enter: Event):
        self._reader = recording._reader
        self.call = RecordedCall(recording.path, enter.root, enter.scope, enter, enter)
        self.call.sources = getattr(recording, "sources", {})
        self._prefix = f"{enter.scope}." if enter.scope else ""
        writer = self._reader.writer(enter.id)
        own = [id for id in range(len(self._reader)) if self._reader.writer(id) == writer]
        marks = (id for id in own if self._reader.kind(id) in ("enter", "exit", "note"))
        if not any(self._take(Event(self._reader, id), self._reader.kind(id)) for id in marks):
            raise Trouble(f"the recording ends before this call of {enter.scope or enter.root} does: {recording.path}")
        self._take_values([id for id in own if id < self.call.exit.id and self._reader.kind(id) == "value"])

    def _take(self, event: Event, kind: str) -> bool:
        """Whether the call has ended."""
        call = self.call
        if kind == "note":
            if event.name in _SETTINGS and event.id < call.enter.id:
                call.settings[event.name] = event.meta
            return False
        if event.root != call.root:
            return False
        text = event._record.meta
        meta = json.loads(text) if any(word in text for word in _TOLD) else {}
        if "build" in meta:
            self._take_build(event.scope, {**meta["build"], "class": meta["class_path"]})
            call.sites[event.scope] = event.site
        if kind == "enter" and ("changed" in meta or "gone" in meta) and event.scope not in call.training:
            self._take_changes(call.builds.get(event.scope, {}), meta)
        for path, build in meta.get("uncalled", {}).items():
            self._take_build(path, build)
        if kind == "enter" and event.scope == call.path and event.id <= call.enter.id and "given" in meta:
            call.given = meta["given"]
        if kind == "enter" and event.id >= call.enter.id:
            call.training.setdefault(event.scope, event.meta.get("training", False))
        if kind == "exit" and event.scope == call.path and event.call == call.enter.call:
            call.exit = event
            return True
        return False

    def _take_build(self, path: str, build: dict) -> None:
        self.call.builds[path] = build
        self._remember_objects(build.get("state"))

    def _take_changes(self, build: dict, meta: dict) -> None:
        """Attributes that have another value from this call on."""
        changed = {name: value for name, value in meta.get("changed", {}).items() if name.count(".") < 2}
        changed.update(meta.get("rebuild", {}))
        self._remember_objects(list(changed.values()))
        for name in meta.get("missing", {}):
            changed.pop(name, None)
        for name in [*meta.get("gone", []), *meta.get("missing", {})]:
            build.get("state", {}).pop(name, None)
        for name, value in changed.items():
            attribute, _, member = name.partition(".")
            if not member:
                build.setdefault("state", {})[attribute] = value
            elif isinstance(held := build.get("state", {}).get(attribute), dict):
                held = self.call.objects.get(held["same"], {}) if "same" in held else held
                if "dict" in held:
                    held["dict"] = [pair for pair in held["dict"] if pair[0] != member] + [[member, value]]
                elif "state" in held:
                    held["state"][member] = value
        if "missing" in meta:
            build["missing"] = {**build.get("missing", {}), **meta["missing"]}

    def _remember_objects(self, value) -> None:
        if isinstance(value, list):
            for each in value:
                self._remember_objects(each)
        elif isinstance(value, dict):
            if "object" in value and "id" in value:
                self.call.objects[value["id"]] = value
            for each in value.values():
                self._remember_objects(each)

    def _take_values(self, ids: list[int]) -> None:
        call = self.call
        tables = [build.get(table, {}) for build in call.builds.values() for table in ("parameters", "buffers")]
        state = {name for table in tables for name in table.values()}
        for id in ids:
            name = self._reader.name(id)
            if id < call.enter.id and name in state:
                event = Event(self._reader, id)
                if event.root == call.root and event.io in ("param", "buffer"):
                    call.state[name] = event
            elif id > call.enter.id and self._reader.call(id) == call.enter.call and name.startswith(self._prefix):
                event = Event(self._reader, id)
                if event.root == call.root and event.scope == call.path and event.io in ("input", "output"):
                    table = call.inputs if event.io == "input" else call.outputs
                    table[name.removeprefix(self._prefix)] = event
