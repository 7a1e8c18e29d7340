"""Moments at which whoever compares a running program may look at what it has recorded.

Probes say when one is reached. Between calls: no module call of theirs is under way, and all that belongs together (the
gradients of a backward, the parameters of a step) has been recorded. Inside: a module's call was entered or left. Those
who look may raise: what they raise is meant for the program.

`calls` counts outermost calls that ended, `trainings` moments around a backward and an optimizer's step.
"""

from __future__ import annotations

from collections.abc import Callable

_between: list[Callable[[], None]] = []
_inside: list[Callable[[], None]] = []
_probes: list[Callable[[], bool]] = []
calls = 0
trainings = 0


def watch(look: Callable[[], None], *, inside: bool = False) -> None:
    """Has `look` called at each moment between calls; with `inside`, at those inside, too."""
    _between.append(look)
    if inside:
        _inside.append(look)


def unwatch(look: Callable[[], None]) -> None:
    for looks in (_between, _inside):
        if look in looks:
            looks.remove(look)


def add_probe(is_inside: Callable[[], bool]) -> None:
    """A probe that can say whether a call or a backward is under way in this thread."""
    _probes.append(is_inside)


def remove_probe(is_inside: Callable[[], bool]) -> None:
    if is_inside in _probes:
        _probes.remove(is_inside)


def is_inside() -> bool:
    return any(asked() for asked in tuple(_probes))


def call_ended() -> None:
    global calls
    calls += 1
    between_calls()


def trains() -> None:
    global trainings
    trainings += 1
    between_calls()


def between_calls() -> None:
    for look in tuple(_between):
        look()


def inside_call() -> None:
    for look in tuple(_inside):
        look()
