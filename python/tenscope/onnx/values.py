"""What goes into ONNX Runtime and comes out of it, as arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tenscope.errors import UsageError
from tenscope.recording.selectors import nearest

# What NumPy itself has; ONNX Runtime gives no arrays of other types.
_PLAIN_NAMES = ("FLOAT DOUBLE FLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL STRING").split()  # noqa: SIM905
_PLAIN = frozenset(getattr(TensorProto, name) for name in _PLAIN_NAMES)


class Node(NamedTuple):
    """An input or output of a session, which ONNX Runtime's own keep alive."""

    name: str
    type: str
    shape: list[Any]


def run_session(
    session: onnxruntime.InferenceSession, names: list[str], feeds: dict[str, Any], run_options: Any
) -> dict[str, Any]:
    """The outputs of these names; tensors are arrays of their own type, of ml_dtypes where NumPy has it not."""
    types = {node.name: node.type for node in [*session.get_inputs(), *session.get_outputs()]}
    if all(_is_plain(types.get(name, "")) for name in [*names, *feeds]):
        return dict(zip(names, session.run(names, feeds, run_options), strict=True))
    inputs = {name: _ort_value(value, types.get(name, "")) for name, value in feeds.items()}
    values = session.run_with_ort_values(names, inputs, run_options)
    return {name: _array(value) if value.is_tensor() else value for name, value in zip(names, values, strict=True)}


def _is_plain(element: str) -> bool:
    return not element.startswith("tensor(") or type_of(element) in _PLAIN


def _ort_value(value: Any, element: str) -> onnxruntime.OrtValue:
    if isinstance(value, onnxruntime.OrtValue):
        return value
    if _is_plain(element):
        return onnxruntime.OrtValue.ortvalue_from_numpy(value)
    bits = value.view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, type_of(element))


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    element, shape = value.element_type(), value.shape()
    if element in _PLAIN:
        return value.numpy()
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()) if 0 not in shape else b""
    return numpy_helper.to_array(TensorProto(data_type=element, dims=shape, raw_data=data))


def type_of(element: str) -> int:
    """The ONNX type of ONNX Runtime's tensor(float), tensor(int64)."""
    name = element.removeprefix("tensor(").removesuffix(")")
    return getattr(TensorProto, {"float": "FLOAT"}.get(name, name.upper()), TensorProto.UNDEFINED)


def is_recordable(element: str) -> bool:
    return element.startswith("tensor(") and element != "tensor(string)"


def described(inputs: Iterable[Node]) -> str:
    """The inputs of a session, one a line: name, type, shape."""
    rows = [(node.name, _type_name(node), _shape_text(node.shape)) for node in inputs]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    return "\n".join(f"  {name:<{widths[0]}}  {dtype:<{widths[1]}}  {shape}" for name, dtype, shape in rows)


def checked_feeds(inputs: list[Node], feeds: Mapping[str, Any], others: Iterable[str]) -> dict[str, Any]:
    """The feeds as arrays, or an error that says what is wrong with them.

    `others` may be fed too: initialisers that the graph lists among its inputs.
    """
    if not isinstance(feeds, Mapping):
        raise UsageError(f"feeds are a dict of arrays by the names of the inputs, not {type(feeds).__name__}")
    known = {node.name: node for node in inputs}
    optional = set(others)
    unknown = [name for name in feeds if name not in known and name not in optional]
    missing = [name for name in known if name not in feeds and not known[name].type.startswith("optional(")]
    if unknown:
        near = nearest(unknown[0], missing or known)
        hint = f"; the nearest is {near!r}" if near else ""
        raise UsageError(f"the model has no input {unknown[0]!r}{hint}. Its inputs:\n{described(inputs)}")
    if missing:
        raise UsageError(f"the input {missing[0]!r} is not among the feeds. The model's inputs:\n{described(inputs)}")
    return {name: _checked(known.get(name), name, value) for name, value in feeds.items()}


def _checked(node: Node | None, name: str, value: Any) -> Any:
    """An array that fits the input; what is no tensor is ONNX Runtime's to check."""
    if isinstance(value, onnxruntime.OrtValue) or node is None or not node.type.startswith("tensor("):
        return value
    element = type_of(node.type)
    wanted = helper.tensor_dtype_to_np_dtype(element)
    if hasattr(value, "detach"):  # of torch
        value = value.detach().cpu()
    array = np.asarray(value, None if hasattr(value, "dtype") else wanted)
    if element != TensorProto.STRING and array.dtype != wanted:
        raise UsageError(f"the input {name!r} must be of {wanted}, not {array.dtype}")
    if not _fits(array.shape, node.shape):
        given = _shape_text(array.shape)
        raise UsageError(f"the input {name!r} must have the shape {_shape_text(node.shape)}, not {given}")
    return array if array.flags.c_contiguous else array.copy(order="C")


def _fits(shape: tuple[int, ...], wanted: list[Any] | None) -> bool:
    if wanted is None:
        return True
    same = (not isinstance(size, int) or size == own for own, size in zip(shape, wanted))  # noqa: B905
    return len(shape) == len(wanted) and all(same)


def _type_name(node: Node) -> str:
    element = type_of(node.type)
    if not node.type.startswith("tensor(") or element == TensorProto.UNDEFINED:
        return node.type
    return "text" if element == TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(element))


def _shape_text(shape: Iterable[Any] | None) -> str:
    return "any shape" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
