"""The changes of a call, methods of the core's Changes: by place and by name, as a frame, as HTML."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn

from tenscope import _core
from tenscope.errors import NotFoundError
from tenscope.lines import snapshots
from tenscope.lines.show import change_html
from tenscope.notebook import kernel, markup

if TYPE_CHECKING:
    import pandas

_FIRST, _LAST = 30, 10  # rows of the table in a notebook
_OF_TENSORS = ("dtype", "shape", "mean", "std", "min", "max", "nan", "inf")

_change_at = _core.Changes.__getitem__


class SomeChanges(list):
    """Changes that were chosen of a call's: a list, with frame() and a table in a notebook."""

    def frame(self) -> pandas.DataFrame:
        return frame(self)

    def _repr_html_(self) -> str:
        return table_html(self)


class NoChanges(tuple):
    """What stands for the changes of a call before there was one."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return no_changes_of(key, self) if isinstance(key, str) else super().__getitem__(key)

    def frame(self) -> pandas.DataFrame:
        return frame(self)

    def _repr_html_(self) -> str:
        return table_html(self)


def _chosen(self: _core.Changes, key: object) -> object:
    """The change at a place, those of a slice, or those of a name: `changes[0]`, `changes[-3:]`, `changes["loss"]`."""
    if isinstance(key, slice):
        return SomeChanges(_change_at(self, i) for i in range(*key.indices(len(self))))
    if isinstance(key, str):
        found = SomeChanges(change for change in (_change_at(self, i) for i in range(len(self))) if change.name == key)
        return found or no_changes_of(key, self)
    try:
        return _change_at(self, operator.index(key))
    except TypeError:
        raise TypeError(
            f"changes are found by their place or by a name, changes[0] or changes['loss']: not {key!r}"
        ) from None


def no_changes_of(name: str, changes: Sequence[_core.Change]) -> NoReturn:
    seen = list(dict.fromkeys(change.name for change in changes))
    near = _core.nearest(name, seen)
    hint = (
        f" (did you mean {' or '.join(near)}?)" if near else f"; there are those of {', '.join(seen)}" if seen else ""
    )
    raise NotFoundError(f"{name!r} has not changed{hint}")


def frame(changes: Sequence[_core.Change]) -> pandas.DataFrame:
    """A pandas DataFrame, a row for each change. `old` and `new` are numbers where they can be."""
    import pandas

    columns = ("name", "old", "new", "line", "next_line", "function", "call", "file", "first", "time", *_OF_TENSORS)
    rows = []
    for change in changes:
        row = {column: getattr(change, column) for column in columns[3:9]}
        tensor = change.new if isinstance(change.new, _core.TensorValue) else None
        row |= {"name": change.name, "old": _plain(change.old), "new": _plain(change.new)}
        row |= {"time": datetime.fromtimestamp(change.time_ns / 1e9, timezone.utc)}
        rows.append(row | {column: getattr(tensor, column, None) for column in _OF_TENSORS})
    return pandas.DataFrame(rows, columns=columns)


def _plain(value: object) -> object:
    if not isinstance(value, _core.TensorValue) or value.shape != ():
        return value
    try:
        return snapshots.item(value)
    except ValueError:
        return value


def table_html(changes: Sequence[_core.Change]) -> str:
    """The first changes and the last ones: the line that ran, and what it made of a variable."""
    count = len(changes)
    if count == 0:
        return markup.page(markup.headline("no changes"))
    first = changes[0]
    where = f"{first.function}(), call {first.call}, {kernel.shown_file(first.file)}"
    head = f"{count:,} change{'s' if count > 1 else ''} in {where}"
    rest = [f"{changes.left_out:,} more were not kept"] if getattr(changes, "left_out", 0) else []
    if getattr(changes, "raised", False):
        rest.append("the call ended by an exception")
    is_long = count > _FIRST + _LAST + 1
    shown = [changes[i] for i in range(_FIRST if is_long else count)]
    rows = [_cells(change) for change in shown]
    if is_long:
        rows.append(["", "", markup.toned("dim", f"… {count - _FIRST - _LAST:,} more: .frame() has them all"), "", ""])
        rows += [_cells(changes[i]) for i in range(count - _LAST, count)]
    columns = ("variable", "old", "new", "line", "source")
    table = markup.table(columns, rows, right=[3])
    return markup.page(markup.headline(head) + table + "".join(map(markup.below, rest)))


def _cells(change: _core.Change) -> list[str]:
    old, new = change_html(change)
    is_entry = change.first and change.line == change.code.co_firstlineno
    source = "at entry" if is_entry else linecache.getline(change.file, change.line).strip()
    return [
        markup.toned("name", change.name),
        old,
        new,
        str(change.line),
        f"<code>{markup.toned('dim', source[:160])}</code>",
    ]


_core.Changes.__getitem__ = _chosen
_core.Changes.frame = frame
_core.Changes._repr_html_ = table_html
_core.Changes.__reduce__ = lambda self: (tuple, ())  # a function pickled by value goes without its last changes
