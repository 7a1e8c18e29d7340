"""Two runs compared on an executor: ranks in parts, of which each task compares one and gives what it found."""

from __future__ import annotations

import os
import queue
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import Any

from tenscope import _core, remote
from tenscope.errors import Error, UsageError

_MOST_TASKS = 64
_TRIES = 3


def compare(
    executor: Any,
    a: remote.Place,
    b: remote.Place,
    *,
    ranks: Iterable[int] | None,
    map: list[str],
    tolerance: float | None,
    noise: str | None,
    prefix: bool,
    progress: Callable[[float], object] | None,
) -> _core.PartialDiff:
    """Compares `ranks` of two runs by tasks of `executor` (all ranks where there are none) and merges what they find.

    A part that fails for a reason that is not in the runs, as when its worker was killed, is tried again.
    """
    if not hasattr(executor, "submit"):
        raise UsageError(
            f"an executor has a method submit, as in concurrent.futures; {type(executor).__name__} has none"
        )
    (path_a, ranks_a), (path_b, ranks_b) = _core.run_ranks(a.path), _core.run_ranks(b.path)
    wanted = sorted(set(ranks_a) | set(ranks_b) if ranks is None else set(ranks))
    runs = (_anywhere(a, path_a), _anywhere(b, path_b))

    def submit(part: list[int]) -> Any:
        call = uuid.uuid4().hex  # an executor may take calls with equal arguments for one, as Dask does
        return executor.submit(_compare_part, call, *runs, part, map, tolerance, noise, prefix)

    merged: _core.PartialDiff | None = None
    done = 0
    for part, found in _results(submit, _parts_of(wanted)):
        if merged is None:
            merged = found
        else:
            merged.merge(found)
        done += len(part)
        if progress is not None:
            progress(done / len(wanted))
    if merged is None:
        merged = _compare_part("", *runs, [], map, tolerance, noise, prefix)  # of empty runs
    merged.a, merged.b = a.shown(path_a), b.shown(path_b)
    return merged


def _compare_part(
    call: str,
    a: str,
    b: str,
    ranks: list[int],
    map: list[str],
    tolerance: float | None,
    noise: str | None,
    prefix: bool,
) -> _core.PartialDiff:
    places = remote.place_of(a), remote.place_of(b)
    with remote.reading(*places, all_ranks=False):
        return _core.diff_some_ranks(places[0].path, places[1].path, ranks, map, tolerance, prefix, noise)


def _anywhere(place: remote.Place, path: str) -> str:
    """What a worker, which may be in another folder, opens the run by."""
    return os.path.abspath(path) if place.mirror is None else place.shown(path)


def _parts_of(ranks: list[int]) -> list[list[int]]:
    size = -(-len(ranks) // _MOST_TASKS)
    return [ranks[i : i + size] for i in range(0, len(ranks), size)] if ranks else []


def _results(submit: Callable[[list[int]], Any], parts: list[list[int]]) -> Iterable[tuple[list[int], Any]]:
    """Parts with what was found of them, as they become ready."""
    ready: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    futures: dict[int, Any] = {}
    tries = [0] * len(parts)

    def begin(i: int) -> None:
        tries[i] += 1
        futures[i] = submit(parts[i])
        futures[i].add_done_callback(lambda future: ready.put((i, future)))

    try:
        for i in range(len(parts)):
            begin(i)
        while futures:
            i, future = ready.get()
            del futures[i]
            try:
                found = future.result()
            except Error:
                raise  # of the runs: it would be the same again
            except (Exception, CancelledError) as error:
                _begin_again(begin, i, parts[i], tries[i], error)
            else:
                yield parts[i], found
    finally:
        for future in futures.values():
            future.cancel()


def _begin_again(begin: Callable[[int], None], i: int, part: list[int], tries: int, error: BaseException) -> None:
    try:
        if tries < _TRIES:
            return begin(i)
        times = f"{tries} times"
    except Exception:
        times = "and the executor takes no more tasks"
    ranks = f"rank {part[0]}" if len(part) == 1 else f"ranks {part[0]} to {part[-1]}"
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    raise Error(f"the comparison of {ranks} failed in the executor, {times}: {reason}") from error
