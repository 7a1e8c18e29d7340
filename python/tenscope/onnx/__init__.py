"""Recording ONNX models as ONNX Runtime computes them: every intermediate tensor, by its name. See docs/onnx.md."""

from __future__ import annotations

import importlib.util

_missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
if _missing:
    raise ImportError(f"tenscope.onnx needs {' and '.join(_missing)}: pip install {' '.join(_missing)}")

from tenscope.onnx.session import Session, record  # noqa: E402

__all__ = ["Session", "record"]
