"""The recorder does not change the program: training gives bitwise equal parameters with it on and off."""

import random
import sys

import numpy as np
import pytest
import tenscope

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="torch is installed for CPython 3.11 only")
torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None


def train(record, step, steps=50):
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(32, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        inputs = torch.randn(16, 8) + float(np.random.rand()) + random.random()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(inputs)
            loss = outputs.float().square().mean()
        record("inputs", inputs)
        record("outputs", {"logits": outputs, "parts": [outputs[:, ::2], outputs.T]})
        record("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            record(name, parameter)
            record(f"{name}.grad", parameter.grad)
        record("state", model.state_dict())
        optimizer.step()
        record("optimizer", optimizer.state_dict())
        step()
    versions = [tensor._version for tensor in model.state_dict().values()]
    draws = [torch.rand(3), torch.from_numpy(np.random.rand(3)), torch.tensor([random.random()])]
    return [*model.state_dict().values(), *draws], versions


def bits(tensor):
    return (
        tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else tensor.numpy().tobytes()
    )


def test_training_is_bitwise_equal_with_the_recorder_on_and_off(tmp_path):
    plain, plain_versions = train(lambda name, value: None, lambda: None)
    run = tenscope.init(tmp_path)
    recorded, versions = train(tenscope.record, tenscope.step)
    tenscope.close()
    assert [bits(a) for a in plain] == [bits(b) for b in recorded]
    assert plain_versions == versions
    assert run.dropped == 0
    back = tenscope.open(run.path)
    last = back["4.weight", 49].torch()
    assert back.steps("loss") == list(range(50)) and last.shape == (4, 32)
    assert not torch.equal(last, back["4.weight", 0].torch())


def test_gradients_flow_through_recorded_tensors(tmp_path):
    x = torch.ones(3, requires_grad=True)
    with tenscope.Run(tmp_path):
        y = x * 2
        tenscope.record("y", y)
        y.add_(1)
        tenscope.record("y", y)
        y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
