"""An ONNX model as the adapter needs it: its bytes with more outputs, where its external data is, what each node is.

A model may have more than the 2 GB that a protobuf message can: its weights then stand in files beside it. They are
never copied or loaded as a whole: ONNX Runtime takes the graph from memory and reads them in the model's folder.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
from onnx import numpy_helper

from tenscope.errors import CorruptError, NotFoundError, UnsupportedError, UsageError

MOST_INLINE_BYTES = 1 << 30  # of weights; what is above is written to a file, as a message may have 2 GB

_OWN_SCOPES = "pkg.torch.onnx.name_scopes"
_OWN_CLASSES = "pkg.torch.onnx.class_hierarchy"
_OWN_STACK = "pkg.torch.onnx.stack_trace"
_FOLDER_ENTRY = "session.model_external_initializers_file_folder_path"


@dataclass
class Made:
    """What is known of a tensor by the node that makes it."""

    op: str
    node: str
    domain: str
    inputs: list[str]
    scope: str = ""  # the path of the module that it was exported from
    cls: str = ""
    site: str = ""

    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = {"op": self.op, "node": self.node, "inputs": self.inputs}
        return {**meta, "domain": self.domain} if self.domain else meta


@dataclass
class Model:
    proto: onnx.ModelProto
    folder: str = ""  # of the external data
    key: Any = None  # the same for the same model
    made: dict[str, Made] = field(default_factory=dict)  # by tensor, in the order of the nodes
    closed: list[str] = field(default_factory=list)  # nodes with a graph inside
    _temporary: tempfile.TemporaryDirectory | None = None

    def __post_init__(self) -> None:
        if self.proto.functions:
            self.proto = onnx.inliner.inline_local_functions(self.proto)
        _spill(self)
        for node in self.proto.graph.node:
            scope, cls, site = _origin(node)
            made = Made(node.op_type, node.name, node.domain, [name for name in node.input if name], scope, cls, site)
            self.made.update((name, made) for name in node.output if name)
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                self.closed.append(f"{node.name or node.output[0]} ({node.op_type})")

    @property
    def graph(self) -> onnx.GraphProto:
        return self.proto.graph

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self.graph.output]

    def bytes_with_outputs(self, names: list[str]) -> bytes:
        """The model with these tensors as further outputs. Two messages one after the other are their union."""
        known = set(self.outputs)
        graph = onnx.GraphProto(output=[onnx.ValueInfoProto(name=name) for name in names if name not in known])
        return self.proto.SerializeToString() + onnx.ModelProto(graph=graph).SerializeToString()

    def prepare(self, options: onnxruntime.SessionOptions) -> None:
        if any(map(_is_external, self.graph.initializer)) and _entry(options, _FOLDER_ENTRY) != self.folder:
            options.add_session_config_entry(_FOLDER_ENTRY, self.folder)

    def parameters(self) -> Iterator[tuple[str, Made | None, np.ndarray]]:
        """Name, first user and value of each initialiser, one at a time."""
        users: dict[str, Made] = {}
        for made in self.made.values():
            for name in made.inputs:
                users.setdefault(name, made)
        for tensor in self.graph.initializer:
            if tensor.data_type != onnx.TensorProto.STRING:
                yield tensor.name, users.get(tensor.name), numpy_helper.to_array(tensor, self.folder)

    def parameters_left_out(self) -> list[str]:
        names = [tensor.name for tensor in self.graph.initializer if tensor.data_type == onnx.TensorProto.STRING]
        return names + [sparse.values.name for sparse in self.graph.sparse_initializer]


def load(model: Any) -> Model:
    """From a path, a ModelProto, its bytes, or an onnxruntime.InferenceSession made of one of them."""
    if isinstance(model, onnxruntime.InferenceSession):
        model = getattr(model, "_model_path", None) or getattr(model, "_model_bytes", None)
        if model is None:
            raise UnsupportedError("the session does not say what model it was made of: give the model's path")
    if isinstance(model, onnx.ModelProto):
        return _checked(Model(model, key=id(model)))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _checked(Model(_parse(bytes(model), "the bytes given"), key=hash(bytes(model))))
    if not isinstance(model, (str, os.PathLike)):
        raise UsageError(f"a model is a path, a ModelProto, bytes or an InferenceSession, not {type(model).__name__}")
    path = Path(model)
    if not path.is_file():
        raise NotFoundError(f"cannot read the model: no such file: {path}")
    return Model(_parse(path.read_bytes(), str(path)), str(path.absolute().parent), str(path.absolute()))


def optimised(model: Model, options: onnxruntime.SessionOptions, **session: Any) -> Model:
    """The graph that ONNX Runtime makes of it: written to a file by a session, then read again."""
    temporary = tempfile.TemporaryDirectory(prefix="tenscope-")
    path = Path(temporary.name) / "optimised.onnx"
    before = options.optimized_model_filepath
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    model.prepare(options)
    onnxruntime.InferenceSession(model.bytes_with_outputs([]), options, **session)
    options.optimized_model_filepath = before
    made = Model(_parse(path.read_bytes(), str(path)), temporary.name, model.key)
    made._temporary = temporary
    return made


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:
        raise CorruptError(f"not an ONNX model: {error}: {where}") from error


def _checked(model: Model) -> Model:
    """Weights that stand in files can be found only where the model's own place is known."""
    if not model.folder and any(map(_is_external, model.graph.initializer)):
        raise UsageError("the model has its weights in other files: give its path, or load it with its external data")
    return model


def _entry(options: onnxruntime.SessionOptions, key: str) -> str | None:
    try:
        return options.get_session_config_entry(key)
    except RuntimeError:  # there is none
        return None


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _spill(model: Model) -> None:
    """Writes the weights of a model that is too large for one message to a file; the given one is left as it is."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size <= MOST_INLINE_BYTES:
        return
    if any(map(_is_external, model.graph.initializer)):
        raise UnsupportedError("some weights stand in other files, and what stands in the model itself is above 1 GB")
    model._temporary = tempfile.TemporaryDirectory(prefix="tenscope-")
    model.folder = model._temporary.name
    whole = model.proto
    light = _copy_without(whole, "graph")
    light.graph.CopyFrom(_copy_without(whole.graph, "initializer"))
    with open(Path(model.folder) / "weights.bin", "wb") as file:
        for tensor in whole.graph.initializer:
            if not tensor.raw_data:
                light.graph.initializer.append(tensor)
                continue
            one = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            one.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", file.tell()), ("length", len(tensor.raw_data))):
                one.external_data.add(key=key, value=str(value))
            file.write(tensor.raw_data)
    model.proto = light


def _copy_without(message: Any, left_out: str) -> Any:
    copy = type(message)()
    for descriptor, value in message.ListFields():
        if descriptor.name == left_out:
            continue
        if descriptor.is_repeated:
            getattr(copy, descriptor.name).extend(value)
        elif descriptor.message_type is not None:
            getattr(copy, descriptor.name).CopyFrom(value)
        else:
            setattr(copy, descriptor.name, value)
    return copy


def _origin(node: onnx.NodeProto) -> tuple[str, str, str]:
    """Path and class of the module that a node was exported from, and the line of code, as far as exporters tell.

    torch's newer exporter writes them as metadata. The older one, and tf2onnx, name nodes by their scope:
    /model/layers.0/self_attn/q_proj/MatMul.
    """
    told = {entry.key: entry.value for entry in node.metadata_props}
    paths, classes = _texts(told.get(_OWN_SCOPES)), _texts(told.get(_OWN_CLASSES))
    site = _innermost_line(told.get(_OWN_STACK, ""))
    if len(paths) >= 2:  # the last is the operation itself
        cls = classes[-2].rpartition(".")[2] if len(classes) == len(paths) else ""
        return paths[-2], cls, site
    parts = [part for part in node.name.split("/") if part]
    return ".".join(parts[:-1]), "", site


def _texts(literal: str | None) -> list[str]:
    try:
        value = ast.literal_eval(literal or "[]")
    except (ValueError, SyntaxError):
        return []
    return [str(part) for part in value] if isinstance(value, list) else []


def _innermost_line(trace: str) -> str:
    """Of a traceback as text, the last line that is not in an installed package."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [line for line in lines if "site-packages" not in line[0]]
    return ":".join((own or lines or [("",)])[-1])
