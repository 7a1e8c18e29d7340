"""tenscope.gather(model, paths): values of all ranks together in rank 0, every so often, over torch.distributed.

Overview. While active, each call of the model is an iteration; the values at the paths (probes/locals.py) that are new
are copied and kept with it. A gathering hands them to rank 0, where they are appended to the results, rank by rank.
Before anything collective is called the ranks sign in at the process group's store, and afterwards they sign out: so
one that died or lags is named in an error, instead of all waiting for it.
"""

from __future__ import annotations

import datetime
import itertools
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import distributed, nn

from tenscope.errors import Error
from tenscope.probes.locals import Known, LocalsWatch, deeper_than_compared
from tenscope.probes.modules import check_module, unwrap
from tenscope.recording.run import current
from tenscope.recording.selectors import Unmatched, globs, tell

_ROLL_CALL_S = 5  # for those who live to say so, after a collective failed


class Series(NamedTuple):
    """All values of one name."""

    iterations: list
    ranks: list
    values: list

    def stack(self, pad: bool = False) -> torch.Tensor:
        """One tensor of all values; with `pad`, those of other shapes get leading axes and zeros at the end of each."""
        return stacked(self.values, pad)


class Results(defaultdict):
    def __init__(self):
        super().__init__(lambda: Series([], [], []))


def _initialized() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def rank() -> int:
    return distributed.get_rank() if _initialized() else 0


class Gatherer:
    """Collects values; `gather()` is called by all ranks alike. Callbacks change their lists in place."""

    def __init__(
        self, pre_gather: Iterable[Callable] = (), post_gather: Iterable[Callable] = (), timeout_s: float = 300
    ):
        self._pre = list(pre_gather)
        self._post = list(post_gather)
        self._timeout = datetime.timedelta(seconds=timeout_s)
        self._captured: dict[str, tuple[list, list]] = {}
        self.results = Results()

    def add(self, name: str, value: object, iteration: int) -> None:
        values, iterations = self._captured.setdefault(name, ([], []))
        values.append(value)
        iterations.append(iteration)

    def gather(self) -> None:
        captured, self._captured = self._captured, {}
        for name, (values, iterations) in captured.items():
            for callback in self._pre:
                callback(name, values, iterations)
        everyone = self._collect(captured)
        if everyone is None:
            return
        merged: dict[str, Series] = {}
        for of_rank, entries in enumerate(everyone):
            for name, (values, iterations) in entries.items():
                series = merged.setdefault(name, Series([], [], []))
                series.values.extend(values)
                series.iterations.extend(iterations)
                series.ranks.extend([of_rank] * len(iterations))
        for name, series in merged.items():
            for callback in self._post:
                callback(name, series.values, series.iterations, series.ranks)
            into = self.results[name]
            into.values.extend(series.values)
            into.iterations.extend(series.iterations)
            into.ranks.extend(series.ranks)

    def _collect(self, captured: dict) -> list[dict] | None:
        """What every rank captured, on rank 0; None elsewhere."""
        if not _initialized():
            return [captured]
        meeting = _Meeting(self._timeout)
        meeting.sign_in()
        everyone = [None] * distributed.get_world_size() if rank() == 0 else None
        try:
            distributed.gather_object(captured, everyone, dst=0)
        except RuntimeError as error:
            raise Error(f"gathering failed: {meeting.who_left()} went away while values were sent: {error}") from error
        meeting.sign_out()
        return everyone


class _Meeting:
    """All ranks at one gathering, by what they write to the process group's store."""

    def __init__(self, timeout: datetime.timedelta):
        self._store = distributed.distributed_c10d._get_default_store()
        self._timeout = timeout
        self._ranks = range(distributed.get_world_size())
        group, number = _next_number()
        self._key = f"tenscope/gathering/{group}/{number}"
        self._previous = f"tenscope/gathering/{group}/{number - 1}" if number else ""

    def sign_in(self) -> None:
        """All ranks have come, or an error that names those who have not."""
        self._store.set(f"{self._key}/{rank()}", "here")
        if rank() != 0:
            self._await([0], [f"{self._key}/go"])
            return
        others = self._ranks[1:]
        self._await(others, [f"{self._key}/{other}" for other in others])
        self._store.set(f"{self._key}/go", "go")
        self._forget_previous()

    def sign_out(self) -> None:
        self._store.set(f"{self._key}/over/{rank()}", "over")

    def who_left(self) -> str:
        try:
            self.sign_out()
            self._store.wait([f"{self._key}/over/{r}" for r in self._ranks], datetime.timedelta(seconds=_ROLL_CALL_S))
        except RuntimeError:
            pass
        return self._missing(self._ranks, [f"{self._key}/over/{r}" for r in self._ranks])

    def _await(self, ranks: Iterable[int], keys: list[str]) -> None:
        try:
            self._store.wait(keys, self._timeout)
        except RuntimeError as error:  # DistStoreError: time out, or the store is gone with rank 0
            names, seconds = self._missing(ranks, keys), self._timeout.total_seconds()
            raise Error(f"gathering failed: {names} did not come within {seconds:g} s; it died or lags") from error

    def _missing(self, ranks: Iterable[int], keys: list[str]) -> str:
        try:
            missing = [f"rank {r}" for r, key in zip(ranks, keys, strict=True) if not self._store.check([key])]
        except RuntimeError:
            return "rank 0 (the process group's store is gone)"
        return ", ".join(missing) or "a rank"

    def _forget_previous(self) -> None:
        """Everybody is here, so nobody looks at the last meeting any more."""
        if not self._previous:
            return
        for key in ["go", *self._ranks, *(f"over/{r}" for r in self._ranks)]:
            self._store.delete_key(f"{self._previous}/{key}")


_numbers = weakref.WeakKeyDictionary()  # by process group, each of which has its number and counts its gatherings
_groups = itertools.count()


def _next_number() -> tuple[int, int]:
    """Names a gathering alike on all ranks: they come to the same ones in the same order, whoever asks for them."""
    group = distributed.group.WORLD
    if group not in _numbers:
        _numbers[group] = (next(_groups), itertools.count())
    number, counter = _numbers[group]
    return number, next(counter)


class gather:
    """Brings values of all ranks together in rank 0 while active; a context manager. docs/trace.md.

    paths          of local variables and return values, as the locals of tenscope.trace
    every          values are taken in each N-th call of the model
    gather_every   they are gathered after each N-th call, and at the end; every rank must call the model as often
    mode           "train" or "eval": only calls in that mode count
    before_save    callables (name, value, iteration) -> value, as a value is taken
    before_gather  callables (name, values, iterations), on each rank; they change the lists in place
    after_gather   callables (name, values, iterations, ranks), on rank 0, in place
    at_end         the same over all results
    hdf5           a file, or a tenscope.Hdf5Saver: what is gathered goes there, and leaves the results
    timeout_s      how long a rank waits for another before it raises an error that names it

    `results[name]`, or `gathered[name]`, has the lists iterations, ranks and values; `.stack(pad=True)` makes a tensor.
    """

    def __init__(
        self,
        model: nn.Module,
        paths: str | Iterable[str],
        *,
        every: int = 1,
        gather_every: int = 1,
        mode: str | None = None,
        before_save: Iterable[Callable] = (),
        before_gather: Iterable[Callable] = (),
        after_gather: Iterable[Callable] = (),
        at_end: Iterable[Callable] = (),
        hdf5=None,
        timeout_s: float = 300,
    ):
        if mode not in (None, "train", "eval"):
            raise ValueError(f'mode must be "train" or "eval", not {mode!r}')
        if every < 1 or gather_every < 1:
            raise ValueError(f"every and gather_every must be at least 1, not {every} and {gather_every}")
        check_module(model, "gather")
        self.model = unwrap(model)
        self.paths = list(globs(paths))
        self.current_iteration = 0
        self.rank = rank()
        self._every = every
        self._gather_every = gather_every
        self._mode = mode
        self._before_save = list(before_save)
        self._at_end = list(at_end)
        self._saver, self._owns_saver = _saver_of(hdf5)
        after = [*after_gather] if self._saver is None else [*after_gather, self._saver]
        self._gatherer = Gatherer(before_gather, after, timeout_s)
        self._gathers_rest = True
        self._capturing = threading.local()
        self._known: dict[str, Known] = {}
        self._lock = threading.RLock()
        self._watch: LocalsWatch | None = None
        self._outer_forward = None
        self._noted: set[tuple] = set()
        self._other_calls = 0  # in the other mode

    @property
    def results(self) -> Results:
        return self._gatherer.results

    def __getitem__(self, name: str) -> Series:
        if name not in self.results:
            raise KeyError(f"nothing was gathered under {name}, only under {', '.join(self.results) or 'no name'}")
        return self.results[name]

    def __enter__(self):
        self._watch = LocalsWatch(self.model, self.paths, self._save, self._is_capturing)
        self._watch.__enter__()
        self._outer_forward = self.model.__dict__.get("forward")
        inner = self.model.forward

        def forward(*args, **kwargs):
            return self._call(inner, args, kwargs)

        self.model.__dict__["forward"] = forward
        return self

    def __exit__(self, error_type, *_) -> None:
        if self._outer_forward is None:
            self.model.__dict__.pop("forward", None)
        else:
            self.model.__dict__["forward"] = self._outer_forward
        self._watch.__exit__()
        if error_type is None:
            run = current()
            found = self._watch.unmatched("gather(paths)", self.current_iteration >= self._every)
            if self._mode is not None and self._other_calls and not self.current_iteration:
                found.append(Unmatched(self._mode, "gather(mode=)", ["eval" if self._mode == "train" else "train"]))
            tell(found if self.rank == 0 else (), None if run is None else run.record)
        try:
            if self._gathers_rest and error_type is None and self.current_iteration % self._gather_every != 0:
                self._gatherer.gather()
            for name, series in list(self.results.items()):
                for callback in self._at_end:
                    callback(name, series.values, series.iterations, series.ranks)
        finally:
            if self._owns_saver:
                self._saver.close()

    def _call(self, forward, args, kwargs):
        if self._mode is not None and self.model.training != (self._mode == "train"):
            self._other_calls += 1
            return forward(*args, **kwargs)
        with self._lock:
            self.current_iteration += 1
            iteration = self.current_iteration
        before = getattr(self._capturing, "iteration", None)
        self._capturing.iteration = iteration if iteration % self._every == 0 else None
        try:
            result = forward(*args, **kwargs)
        finally:
            self._capturing.iteration = before
        if iteration % self._gather_every == 0:
            self._gatherer.gather()
        return result

    def _is_capturing(self) -> bool:
        return getattr(self._capturing, "iteration", None) is not None

    def _note_once(self, meta: dict[str, object]) -> None:
        run, key = current(), (meta["what"], meta["name"])
        if run is not None and key not in self._noted:
            self._noted.add(key)
            run.record("left_out", kind="note", site="", meta=meta)

    def _save(self, name: str, _scope: str, value: object) -> None:
        iteration = self._capturing.iteration
        with self._lock:
            known = self._known.setdefault(name, Known())
            is_new = known.is_new(value)
        if known.is_cut:
            self._note_once(deeper_than_compared(name))
        if not is_new:
            return
        uncopied: list[str] = []
        value = detached_copy(value, uncopied)
        if uncopied:
            reason = f"cannot be copied, gathered as text: {', '.join(dict.fromkeys(uncopied))}"
            self._note_once({"what": "values", "name": name, "count": len(uncopied), "reason": reason})
        for callback in self._before_save:
            value = callback(name, value, iteration)
        with self._lock:
            self._gatherer.add(name, value, iteration)


def _saver_of(hdf5):
    if hdf5 is None:
        return None, False
    from tenscope.probes.hdf5 import Hdf5Saver

    if isinstance(hdf5, Hdf5Saver):
        return hdf5, False
    return Hdf5Saver(hdf5), True


def stacked(values: list, pad: bool = False) -> torch.Tensor:
    tensors = [torch.as_tensor(value) for value in values]
    if not tensors:
        return torch.empty(0)
    if not pad:
        return torch.stack(tensors)
    dims = max(tensor.dim() for tensor in tensors)
    tensors = [tensor.reshape((1,) * (dims - tensor.dim()) + tensor.shape) for tensor in tensors]
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    result = torch.zeros(len(tensors), *shape, dtype=dtype)
    for row, tensor in zip(result, tensors, strict=True):
        row[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return result


def detached_copy(value: object, uncopied: list[str] | None = None) -> object:
    """A copy on the CPU that shares nothing with the program: tensors inside anything are detached. Never fails: what
    cannot be copied becomes its text, and `uncopied` gets the name of its type."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return _rebuilt(value, {key: detached_copy(item, uncopied) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(detached_copy(item, uncopied) for item in value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _rebuilt(value, [detached_copy(item, uncopied) for item in value])
    return _copied_object(value, uncopied)


def _rebuilt(original, content):
    try:
        return type(original)(content)
    except Exception:
        return content


def _copied_object(value: object, uncopied: list[str] | None) -> object:
    import copy

    try:
        return copy.deepcopy(value)
    except Exception:
        pass
    try:
        twin = copy.copy(value)
        for name, member in vars(value).items():
            twin.__dict__[name] = detached_copy(member, uncopied)
        return twin
    except Exception:
        if uncopied is not None:
            uncopied.append(type(value).__name__)
        return repr(value)
