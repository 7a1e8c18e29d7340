"""tensortrace's document and its facts, run against the drop-in. The distributed snippets run in two gloo processes."""

import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from tenscope.compat import tensortrace
from tenscope.compat.tensortrace import ModelTracer, stack_padded_tensors, stack_tensors, trace_model
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x, scale=2.0):
        h = self.fc(x)
        h = h * scale
        cache = {"k": h + 1, "deep": [h, {"v": h * 3}]}
        return cache["k"].relu()

    def helper(self, y):
        z = y + 1
        return z


class Model(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.bn1 = nn.BatchNorm1d(width)
        self.stack = nn.ModuleList(Layer(width) for _ in range(2))
        self.register_buffer("table", torch.ones(3))

    def forward(self, x):
        x = self.bn1(x)
        parts = []
        count = 0
        for layer in self.stack:
            x = layer(x)
            parts.append(x.sum())
            count += 1  # noqa: SIM113
        total = self.stack[0].helper(x)
        nothing = None  # noqa: F841
        return total


def traced(variables, calls=1, model=None, **options):
    torch.manual_seed(0)
    model = model or Model()
    with ModelTracer(model, variables, **options) as tracer:
        outputs = [model(torch.full((2, 4), float(i)) + torch.arange(4.0)) for i in range(calls)]
    return tracer, outputs, model


def test_inputs_outputs_and_iterations():
    tracer, outputs, model = traced(["forward", "forward.x"], calls=3)
    series = tracer.results["forward"]
    assert series.iterations == [1, 2, 3] and series.ranks == [0, 0, 0]
    assert all(torch.equal(a, b) for a, b in zip(series.values, outputs, strict=True))
    assert not series.values[0].requires_grad
    x = tracer.results["forward.x"]
    assert x.iterations == [1] * 4 + [2] * 4 + [3] * 4, "the argument, after bn1, after each layer"
    assert torch.equal(x.values[0], torch.arange(4.0).expand(2, 4))
    assert "forward" not in vars(model) and model.forward.__func__ is Model.forward
    assert tracer.current_iteration == 3 and tracer.model is model and tracer.variables == ["forward", "forward.x"]


def test_paths():
    tracer, outputs, model = traced(
        [
            "stack.*.forward",
            "stack.1",
            "stack.1.forward.scale",
            "stack.*.forward.cache.k",
            "stack.0.forward.cache.deep.1.v",
            "stack.0.helper.z",
            "stack.0.helper",
            "forward.parts",
            "forward.parts.*",
            "forward.parts.0",
            "forward.self.*.running_var",
            "forward.self.table",
            "forward.nothing",
            "forward.count",
            "no.such.thing",
            "forward.missing",
        ],
        calls=2,
    )
    results = tracer.results
    assert torch.equal(results["stack.1"].values[0], results["stack.1.forward"].values[0])
    assert results["stack.1.forward.scale"].values == [2.0], "unchanged plain values are saved once"
    assert torch.equal(results["stack.0.forward.cache.k"].values[0].relu(), results["stack.0.forward"].values[0])
    h = results["stack.0.forward.cache.k"].values[0] - 1
    assert torch.allclose(results["stack.0.forward.cache.deep.1.v"].values[0], h * 3)
    assert torch.equal(results["stack.0.helper"].values[-1], outputs[-1])
    assert torch.equal(results["stack.0.helper.z"].values[-1], outputs[-1])
    assert [len(v) for v in results["forward.parts"].values] == [0, 1, 2, 0, 1, 2]
    assert torch.equal(results["forward.parts.0"].values[0], results["stack.0.forward"].values[0].sum())
    assert len(results["forward.parts.1"].values) == 2
    running = results["forward.self.bn1.running_var"]
    assert running.iterations == [1, 1, 2] and torch.equal(running.values[-1], model.bn1.running_var)
    assert results["forward.self.table"].iterations == [1], "an untouched buffer is saved once"
    assert results["forward.nothing"].values == [None]
    assert results["forward.count"].values == [0, 1, 2, 0, 1, 2]
    assert not {"no.such.thing", "forward.missing"} & set(results)


def test_intervals_modes_and_reentry():
    tracer, _, model = traced(
        ["forward.self.bn1.num_batches_tracked", "forward"], calls=7, trace_interval=2, gathering_interval=3
    )
    assert tracer.results["forward"].iterations == [2, 4, 6]
    with pytest.raises(AssertionError):
        ModelTracer(model, [], eval_only=True, train_only=True)
    tracer = ModelTracer(model, ["forward"], eval_only=True)
    for _ in range(2):
        with tracer as same:
            assert same is tracer
            model.train()(torch.randn(2, 4))
            model.eval()(torch.randn(2, 4))
    assert tracer.results["forward"].iterations == [1, 2] and tracer.current_iteration == 2


def test_exception_leaves_everything_as_it_was():
    class Fails(nn.Module):
        def forward(self, x):
            y = x + 1
            raise KeyError(y.shape)

    model = Fails()
    before = sys.gettrace()
    with pytest.raises(KeyError), ModelTracer(model, ["forward.y"]) as tracer:
        model(torch.ones(1))
    assert "forward" not in vars(model) and sys.gettrace() is before
    assert dict(tracer.results) == {}


def test_two_at_once_and_threads():
    model = Model()
    with ModelTracer(model, ["forward"]) as outer, ModelTracer(model, ["forward.count"]) as inner:
        thread = threading.Thread(target=lambda: model(torch.randn(2, 4)))
        thread.start()
        thread.join()
    assert outer.results["forward"].iterations == [1] and inner.results["forward.count"].values == [0, 1, 2]
    assert "forward" not in vars(model)


def test_callbacks_in_order():
    log = []

    def pre_save(name, value, iteration):
        log.append(("save", name, iteration))
        return value.sum()

    def pre_gather(name, values, iterations):
        log.append(("pre", name, len(values), list(iterations)))

    def post_gather(name, values, iterations, ranks):
        log.append(("post", name, len(values), list(ranks)))

    def post_trace(name, values, iterations, ranks):
        log.append(("trace", name, len(values)))

    tracer, outputs, _ = traced(
        ["forward"],
        calls=3,
        gathering_interval=2,
        pre_save_callbacks=[pre_save],
        pre_gather_callbacks=[pre_gather],
        post_gather_callbacks=[post_gather],
        post_trace_callbacks=[post_trace],
    )
    assert [entry for entry in log if entry[0] != "save"] == [
        ("pre", "forward", 2, [1, 2]),
        ("post", "forward", 2, [0, 0]),
        ("trace", "forward", 2),
    ]
    assert torch.equal(tracer.results["forward"].values[0], outputs[0].sum())


def test_values_that_cannot_be_copied_do_no_harm():
    class Awkward(nn.Module):
        def forward(self, x):
            lock = threading.Lock()
            graph = {"loss": (x * 2).sum(), "lock": lock}
            return graph["loss"]

    x = torch.ones(2, requires_grad=True)
    output, tracer = trace_model(Awkward(), ["forward.lock", "forward.graph", "forward"], x)
    output.backward()
    assert tracer.results["forward.graph"].values[0]["loss"].item() == 4.0
    assert len(tracer.results["forward.lock"].values) == 1
    assert tracer.results["forward"].values[0].item() == 4.0


def test_stacking():
    values = [torch.ones(2), torch.zeros(2)]
    stack_tensors("n", values, [1, 2])
    assert len(values) == 1 and values[0].tolist() == [[1, 1], [0, 0]]
    values = [torch.ones(2, 3), torch.full((4,), 2.0), torch.ones(())]
    stack_padded_tensors("n", values, [1, 2, 3], [0, 0, 0])
    assert values[0].shape == (3, 2, 4)
    assert values[0][0].tolist() == [[1, 1, 1, 0]] * 2 and values[0][1].tolist() == [[2] * 4, [0] * 4]
    for stack in (stack_tensors, stack_padded_tensors):
        values = []
        stack("n", values, [])
        assert values[0].numel() == 0


def test_gathered_shapes_in_one_process():
    tracer, _, _ = traced(
        ["forward"],
        calls=9,
        gathering_interval=4,
        pre_gather_callbacks=[stack_padded_tensors],
        post_gather_callbacks=[stack_padded_tensors],
        post_trace_callbacks=[stack_padded_tensors],
    )
    assert tracer.results["forward"].values[0].shape == (2, 1, 4, 2, 4)


# HDF5


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "deep" / "t.h5"
    saver = tensortrace.H5PYSaverCallback(path, compression="gzip", compression_opts=4, shuffle=True)
    assert path.exists()
    values, iterations, ranks = [torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3)], [1, 2], [0, 1]
    saver("a.b", values, iterations, ranks)
    assert values == iterations == ranks == []
    saver("a.b", [torch.full((1, 2), 5.0)], [3], [0])
    saver("flags", [True, 3, torch.tensor(7)], [1, 2, 3])
    saver("big", [torch.tensor(1), torch.tensor(2)], [1, 1])
    saver("big", [torch.tensor(2**40)], [2])
    saver("text", ["x", "yé"], [1, 2], [0, 0])
    saver("wave", [torch.tensor([1 + 2j])], [1], [0])
    with pytest.raises(ValueError):
        saver("a.b", [torch.ones(3, 3)], [4], [0])
    with pytest.raises(ValueError):
        saver("mixed", [torch.ones(3), torch.ones(3, 3)], [1, 1], [0, 0])
    content, content_iterations = saver.datasets["a.b"]
    assert content.shape == (3, 2, 3) and content_iterations[:].tolist() == [1, 2, 3]
    assert saver.datasets["a.b"].shape == (3, 2, 3), "the pair answers for its values"
    assert saver.h5_file["a.b"] == content and saver.h5_file.filename == str(path)
    saver.close()
    saver.close()
    with h5py.File(path) as file:
        assert file["a.b"].dtype == np.float32 and file["a.b"].compression == "gzip" and file["a.b"].shuffle
        assert file["a.b"][2].tolist() == [[5, 5, 0], [0, 0, 0]]
        assert file["a.b_iterations"][:].tolist() == [1, 2, 3] and file["a.b_iterations"].dtype == np.int64
        assert file["a.b_ranks"][:].tolist() == [0, 1, 0]
        assert file["flags"].dtype == np.int32 and file["flags"][:].tolist() == [1, 3, 7]
        assert file["big"][:].tolist() == [1, 2, 2**40]
        assert file["text"].asstr()[:].tolist() == ["x", "yé"]
        assert file["wave"][0, 0] == 1 + 2j
    with pytest.raises(ValueError):
        tensortrace.H5PYSaverCallback(path, existing_ok=False)


# The document's snippets, in two processes

DOCUMENTED = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler
from tenscope.compat.tensortrace import ModelTracer, stack_padded_tensors, H5PYSaverCallback
import tenscope

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        return self.fc(x)

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
model = Model()
ddp_model = DDP(model)
optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.01)
loss_fn = nn.CrossEntropyLoss()
dataset = TensorDataset(torch.arange(48.).reshape(16, 3), torch.zeros(16))
sampler = DistributedSampler(dataset, 2, rank, shuffle=False)
dataloader = DataLoader(dataset, batch_size=4, sampler=sampler)  # 2 batches a rank and epoch

def loop(tracer, epochs=4):
    with tracer:
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            ddp_model.train()
            for batch_idx, (data, target) in enumerate(dataloader):
                optimizer.zero_grad()
                output = ddp_model(data)
                loss = loss_fn(output, target.long())
                loss.backward()
                optimizer.step()

tracer = ModelTracer(
    ddp_model,
    ["forward", "forward.x"],
    pre_gather_callbacks=[stack_padded_tensors],
    post_gather_callbacks=[stack_padded_tensors],
    post_trace_callbacks=[stack_padded_tensors],
    gathering_interval=4,
)
loop(tracer)
if rank == 0:
    x = tracer.results["forward.x"]
    assert x.values[0].shape == (2, 2, 4, 4, 3), x.values[0].shape
    assert x.values[0][0, 1, 0, 0].tolist() == [3.0, 4.0, 5.0], "rank 1 has the second row"
    assert x.ranks == ([0] * 4 + [1] * 4) * 2 and x.iterations == [1, 2, 3, 4] * 2 + [5, 6, 7, 8] * 2
else:
    assert dict(tracer.results) == {}

saver_callback = H5PYSaverCallback(dataset_file=sys.argv[3] + "/test.h5")
loop(ModelTracer(
    model,
    ["forward", "forward.x"],
    post_gather_callbacks=[stack_padded_tensors, saver_callback],
    gathering_interval=2,
))
if rank == 0:
    assert saver_callback.datasets["forward.x"][0].shape == (4, 4, 4, 3)
saver_callback.close()

def mean_post_gather(name, values, iterations, ranks):
    values[0] = values[0].mean(dim=(0, 1))
    pass

tracer = ModelTracer(
    model,
    ["forward", "forward.x"],
    post_gather_callbacks=[stack_padded_tensors, mean_post_gather],
    post_trace_callbacks=[stack_padded_tensors],
    gathering_interval=4,
)
loop(tracer, epochs=6)
if rank == 0:
    x = tracer.results["forward.x"].values[0]
    assert x.shape == (3, 3), x.shape
    assert torch.allclose(x[0], torch.arange(48.).reshape(16, 3).mean(0))

assert not tenscope.check_sync(ddp_model), "all ranks agree"
if rank == 1:
    with torch.no_grad():
        model.fc.bias[0] += 1
    model.fc.weight.grad = None
report = tenscope.check_sync(ddp_model)
assert [(entry.name, entry.groups, entry.missing) for entry in report] == [
    ("fc.weight.grad", ((0,),), (1,)), ("fc.bias", ((0,), (1,)), ()),
], str(report)

from tenscope.probes.gather import Gatherer
gatherer = Gatherer(timeout_s=3)
if rank == 1:
    time.sleep(2)  # rank 0 may still be reading what the collective above sent
    os._exit(0)
try:
    gatherer.gather()
except tenscope.Error as error:
    assert "rank 1" in str(error), error
    print("named", flush=True)
os._exit(0)
"""


def test_documented_snippets_in_two_processes_and_a_rank_that_died(tmp_path):
    pytest.importorskip("h5py")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    script = tmp_path / "script.py"
    script.write_text(DOCUMENTED)
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(port), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=150) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert outputs[0][0] == "named\n"
