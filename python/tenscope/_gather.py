"""Values of all ranks together in rank 0, every so often, over torch.distributed.

Overview. Each rank keeps what it captured by name: values and the iterations they are of. A gathering hands it to
rank 0, where it is appended to the results, rank by rank. Before anything collective is called the ranks sign in at
the process group's store, so that one that died or lags is named in an error, instead of all waiting for it.
"""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import distributed

from ._errors import Error


class Series(NamedTuple):
    """All values of one name."""

    iterations: list
    ranks: list
    values: list


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
        self._sign_in()
        everyone = [None] * distributed.get_world_size() if rank() == 0 else None
        try:
            distributed.gather_object(captured, everyone, dst=0)
        except RuntimeError as error:
            raise Error(f"gathering failed: a rank went away while values were sent: {error}") from error
        return everyone

    def _sign_in(self) -> None:
        """All ranks have come to this gathering, or an error that names those who have not."""
        store = distributed.distributed_c10d._get_default_store()
        key = f"tenscope/gathering/{_next_number()}"
        store.set(f"{key}/{rank()}", "here")
        if rank() != 0:
            self._await(store, [f"{key}/go"], [0])
            return
        others = list(range(1, distributed.get_world_size()))
        self._await(store, [f"{key}/{other}" for other in others], others)
        store.set(f"{key}/go", "go")

    def _await(self, store, keys: list[str], ranks: list[int]) -> None:
        try:
            store.wait(keys, self._timeout)
        except RuntimeError as error:  # DistStoreError: time out, or the store is gone with rank 0
            missing = [r for r, key in zip(ranks, keys, strict=True) if not _has(store, key)]
            names = ", ".join(f"rank {r}" for r in missing) or "a rank"
            seconds = self._timeout.total_seconds()
            raise Error(f"gathering failed: {names} did not come within {seconds:g} s; it died or lags") from error


def _has(store, key: str) -> bool:
    try:
        return store.check([key])
    except RuntimeError:
        return False


_numbers: dict[int, itertools.count] = {}  # by process group


def _next_number() -> str:
    """Names a gathering alike on all ranks: they come to the same ones in the same order, whoever asks for them."""
    group = id(distributed.group.WORLD)
    counter = _numbers.setdefault(group, itertools.count())
    return f"{list(_numbers).index(group)}/{next(counter)}"


def detached_copy(value: object) -> object:
    """A copy on the CPU that shares nothing with the program: tensors inside anything are detached. Never fails."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return _rebuilt(value, {key: detached_copy(item) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(detached_copy(item) for item in value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _rebuilt(value, [detached_copy(item) for item in value])
    return _copied_object(value)


def _rebuilt(original, content):
    try:
        return type(original)(content)
    except Exception:
        return content


def _copied_object(value: object) -> object:
    import copy

    try:
        return copy.deepcopy(value)
    except Exception:
        pass
    try:
        twin = copy.copy(value)
        for name, member in vars(value).items():
            twin.__dict__[name] = detached_copy(member)
        return twin
    except Exception:
        return repr(value)
