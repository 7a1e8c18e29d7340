"""`tenscope run --onnx model.onnx --inputs x.npz`: records a model with inputs from files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tenscope.errors import UsageError
from tenscope.files import load
from tenscope.onnx.session import Session
from tenscope.onnx.values import described
from tenscope.recording.run import Run


def run(options: Any) -> os.PathLike[str]:
    """Records one call into a new run and returns its folder. Nothing is left behind where the inputs do not fit."""
    session = Session(
        options.onnx,
        include=options.include or None,
        exclude=options.exclude or None,
        values="stats" if options.stats else "full",
        chunk=options.chunk,
        optimised=options.optimised,
    )
    feeds = session.check(_feeds(session, options.inputs))
    where = {"name": options.name or "", "replace": options.replace, "max_bytes": options.max_bytes}
    with Run(options.out, **where) as recording:
        session.run(None, feeds)
    return recording.path


def _feeds(session: Session, words: list[str]) -> dict[str, Any]:
    inputs = session.get_inputs()
    if not words and inputs:
        text = described(inputs)
        raise UsageError(f"--inputs is missing: a .npz or .safetensors with these names, or NAME=FILE.npy:\n{text}")
    feeds: dict[str, Any] = {}
    for word in words:
        name, _, path = word.rpartition("=")
        value = _read(path)
        if name:
            feeds[name] = value
        elif isinstance(value, Mapping):
            feeds.update(value)
        elif len(inputs) == 1:
            feeds[inputs[0].name] = value
        else:
            raise UsageError(f"which input is it? Give NAME={path}; the model's inputs:\n{described(inputs)}")
    return feeds


def _read(path: str) -> Any:
    if not os.path.isfile(path):
        raise UsageError(f"cannot read the inputs: no such file: {path}")
    value = load(path)
    if isinstance(value, (list, tuple)):
        raise UsageError(f"cannot take inputs from a list: they need names: {path}")
    return value
