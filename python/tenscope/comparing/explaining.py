"""tenscope.explain: how does one tensor follow from another?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tenscope import _core
from tenscope.errors import NotFoundError, UsageError
from tenscope.files import load
from tenscope.notebook import markup
from tenscope.reading.recording import open as open_run
from tenscope.recording.registry import plain

__all__ = ["Explanation", "explain"]


class Explanation:
    """How a tensor b follows from a tensor a. True where a relation was found; prints as words and expression.

    relation  in a word: "equal", "scaled", "flipped", ... or "nothing" (docs/explain.md)
    words     "b is a, flipped along axis 1"
    numpy     "b = np.flip(a, 1)": a statement of NumPy that makes one of the other; None where nothing was found
    arrays    the arrays that it names, where they are too long to be written out
    """

    def __init__(self, relation: str, words: str, numpy: str, arrays: dict[str, np.ndarray]) -> None:
        self.relation = relation
        self.words = words
        self.numpy: str | None = numpy or None
        self.arrays = arrays

    def __bool__(self) -> bool:
        return self.relation != "nothing"

    def __str__(self) -> str:
        return "\n".join([self.words, *(f"    {line}" for line in self._statements())])

    def _statements(self) -> list[str]:
        lines = [self.numpy] if self.numpy else []
        for name, array in self.arrays.items():
            numbers = ", ".join(f"{x:.6g}" for x in array.ravel()[:6])
            lines.append(f"{name} {list(array.shape)} = {numbers}{', ...' if array.size > 6 else ''}")
        return lines

    def __repr__(self) -> str:
        return f"<tenscope.Explanation {self.words!r}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        statements = "".join(f"<code>{markup.text(line)}</code>" for line in self._statements())
        return {"text/plain": str(self), "text/html": markup.page(markup.headline(self.words) + statements)}


def explain(a: Any, b: Any) -> Explanation:
    """How ``b`` follows from ``a``: arrays, tensors, or files of them (``"model.safetensors:q"``, ``"RUN:name"``).

    Shapes and dtypes need not be the same. What is said holds for every element, and only what chance cannot explain is
    said. ``print(tenscope.explain(a, b))`` shows it in words and as a NumPy statement::

        b is a, flipped along axis 1
            b = np.flip(a, 1)
    """
    relation, words, numpy, arrays = _core.explain(_tensor(a), _tensor(b))
    return Explanation(
        relation,
        words,
        numpy,
        {
            name: np.array(values, dtype=np.int64 if is_integer else np.float64).reshape(shape)
            for name, shape, values, is_integer in arrays
        },
    )


def _tensor(x: Any) -> Any:
    if isinstance(x, (str, os.PathLike)):
        return _named(os.fspath(x))
    x = plain(x)
    return x if _core.is_tensor_like(x) else np.asarray(x)


def _named(text: str) -> Any:
    """FILE, FILE:NAME or RUN:NAME; a path may have colons of its own."""
    if Path(text).is_file():
        return _member(text, "")
    for at in (i for i, character in enumerate(text) if character == ":" and i + 1 < len(text)):
        path, name = text[:at], text[at + 1 :]
        if Path(path).is_file():
            return _member(path, name)
        if Path(path).is_dir():
            return open_run(path)[name]
    if Path(text).is_dir():
        raise UsageError(f"which of its tensors? Say {text}:NAME")
    raise NotFoundError(f"no such file, nor a tensor of a run as RUN:NAME: {text}")


def _member(path: str, name: str) -> Any:
    tensors = dict(_tensors(load(path), ""))
    if name in tensors:
        return tensors[name]
    if not name and len(tensors) == 1:
        return next(iter(tensors.values()))
    if not tensors:
        raise NotFoundError(f"there is no tensor in {path}")
    if name:
        raise NotFoundError(f"there is no tensor '{name}' in the file: {path}")
    some = ", ".join(list(tensors)[:5])
    raise UsageError(f"which of its {len(tensors)} tensors? Say {path}:NAME, with one of {some}")


def _tensors(value: Any, path: str):
    if _core.is_tensor_like(value):
        yield path, value
        return
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, member in members:
        yield from _tensors(member, f"{path}.{key}" if path else str(key))
