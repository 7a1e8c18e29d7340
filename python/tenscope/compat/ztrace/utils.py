"""Values as JSON can hold them."""

from __future__ import annotations

import json

from tenscope import _core


def plain(value: object) -> object:
    """Numbers, text, lists and dicts with text keys; tensors as nested lists; anything else as text."""
    if value is None or isinstance(value, bool):
        return value
    for base in (str, int, float):
        if isinstance(value, base):
            return base.__str__(value) if base is str else base(value)
    if isinstance(value, _core.TensorValue):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    return repr(value)


def _key(key: object) -> object:
    return plain(key) if key is None or isinstance(key, (str, int, float, bool)) else repr(key)


def to_json(records: dict) -> str:
    return json.dumps(records, indent=2, ensure_ascii=False)
