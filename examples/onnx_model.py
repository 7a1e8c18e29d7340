"""A model in PyTorch and its export in ONNX Runtime, recorded and compared: `python examples/onnx_model.py [--bug]`.

With --bug the export has a transposed weight, which keeps its shape and so goes unnoticed until somebody looks at the
numbers. Needs torch, onnx, onnxruntime and onnxscript.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import tenscope
import tenscope.onnx
import torch
from onnx import numpy_helper
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Softmax(-1)).eval()
x = torch.randn(4, 8)
folder = Path(tempfile.mkdtemp())

with tenscope.Run(folder, name="torch"), tenscope.trace(model, params=True), torch.no_grad():
    model(x)

exported = torch.onnx.export(model, (x,), dynamo=True, verbose=False, input_names=["x"]).model_proto
if "--bug" in sys.argv:
    weight = model[3].weight.detach().numpy()
    for tensor in exported.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.shape == weight.shape and (np.array_equal(value, weight) or np.array_equal(value, weight.T)):
            tensor.CopyFrom(numpy_helper.from_array(value.T.copy(), tensor.name))
onnx.save(exported, folder / "model.onnx")

with tenscope.Run(folder, name="onnx"):
    tenscope.onnx.record(folder / "model.onnx", {"x": x})

print(tenscope.diff(folder / "torch", folder / "onnx"))
