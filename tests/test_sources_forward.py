"""What runs as a forward may come from elsewhere: put there by the program, inherited, wrapped. A diff looks at it."""

import functools
from pathlib import Path

import pytest
import tenscope
from hand_written_run import tenscope as command
from hand_written_run import tenscope_json
from launched import tenscope_run, write

torch = pytest.importorskip("torch")

MODEL = """\
import os, torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.fc(x))

    def forward_twice(self, x):
        return 2 * torch.relu(self.fc(x))


class Same(Net):
    pass
"""
PATCH = """\
import functools, torch


def forward(self, x):
    return torch.relu(self.fc(x)) * 3


def threefold(function):
    @functools.wraps(function)
    def wrapper(*given):
        return function(*given) * 3

    return wrapper


def hidden(function):
    def wrapper(*given):
        return function(*given) * 3

    return wrapper


class Other:
    def __call__(self, x):
        return x * 3
"""
TRAIN = """\
import functools, torch, types, model, patch
torch.manual_seed(0)
net = model.Same() if CASE == "inherited" else model.Net()
if CASE == "class":
    model.Net.forward = patch.forward
if CASE == "module":
    net.forward = types.MethodType(patch.forward, net)
if CASE == "partial":
    net.forward = functools.update_wrapper(functools.partial(patch.forward, net), net.forward)
if CASE == "wrapped":
    net.forward = patch.threefold(net.forward)
if CASE == "hidden":
    model.Net.forward = patch.hidden(model.Net.forward)
if CASE == "method":
    net.forward = net.forward_twice
if CASE == "object":
    net.forward = patch.Other()
if CASE == "torchs":
    torch.nn.Linear.forward = lambda self, x: 3 * torch.nn.functional.linear(x, self.weight, self.bias)
if CASE == "without_source":
    net.forward = torch.relu
if CASE == "text":
    scope = {}
    exec("def forward(self, x): return 3 * self.fc(x)", scope)
    model.Net.forward = scope["forward"]
for i in range(2):
    if CASE == "later" and i == 1:
        net.forward = types.MethodType(patch.forward, net)
    net(torch.ones(2, 4))
"""
# What the second run does, where its forward begins and what is wrapped around it, and what the diff shows of it.
ELSEWHERE = {
    "class": ("patch.py:4", [], "+    return torch.relu(self.fc(x)) * 3"),
    "module": ("patch.py:4", [], "+    return torch.relu(self.fc(x)) * 3"),
    "later": ("patch.py:4", [], "+    return torch.relu(self.fc(x)) * 3"),
    "object": ("patch.py:24", [], "+    return x * 3"),
    "hidden": ("patch.py:17", [], "+    return function(*given) * 3"),
}
WRAPPED = {"wrapped": ("model.py:10", ["patch.py:9"]), "partial": ("model.py:10", ["patch.py:4"])}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forwards")
    write(folder, MODEL, "model.py")
    write(folder, PATCH, "patch.py")
    cases = ["plain", *ELSEWHERE, *WRAPPED, "inherited", "method", "torchs", "without_source", "text"]

    @functools.lru_cache
    def run(case):
        assert case in cases
        write(folder, f"CASE = {case!r}\n{TRAIN}", "train.py")
        done = tenscope_run(folder, "--name", case, "train.py")
        assert done.returncode == 0, done.stderr
        return folder / "runs" / case

    return run


def code_of(a, b):
    return tenscope_json("diff", a, b, check=1)["first_divergence"]


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_forward_from_another_place(runs, case):
    site, wrappers, shown = ELSEWHERE[case]
    found = code_of(runs("plain"), runs(case))
    code = found["code"]
    assert (code["source"], code["forward_elsewhere"]) == ("differs", True)
    assert (code["site_a"], code["site_b"]) == ("model.py:10", site)
    assert (code["wrappers_a"], code["wrappers_b"]) == ([], wrappers)
    lines = found["source_diff"].splitlines()
    assert "-    return torch.relu(self.fc(x))" in lines and shown in lines
    text = command("diff", runs("plain"), runs(case), check=1).stdout
    assert f"model.py:10 in the first run, {site} in the second: Net has its forward from another place" in text
    assert "is the same in both runs" not in text
    back = code_of(runs(case), runs("plain"))["code"]
    assert (back["source"], back["site_a"], back["site_b"]) == ("differs", site, "model.py:10")


@pytest.mark.parametrize("case", WRAPPED)
def test_a_forward_that_is_wrapped_in_one_run(runs, case):
    site, wrappers = WRAPPED[case]
    code = code_of(runs("plain"), runs(case))["code"]
    assert (code["source"], code["site_b"], code["wrappers_b"]) == ("differs", site, wrappers)
    text = command("diff", runs("plain"), runs(case), check=1).stdout
    assert "the source of Net is the same, what is wrapped around its forward is not" in text
    assert f"nothing in the first run, {wrappers[0]} in the second" in text


def test_another_method_of_the_same_class(runs):
    found = code_of(runs("plain"), runs("method"))
    assert found["code"]["source"] == "differs" and not found["code"]["forward_elsewhere"]
    assert "+        return 2 * torch.relu(self.fc(x))" in found["source_diff"]


def test_a_class_of_torchs_own(runs):
    found = code_of(runs("plain"), runs("torchs"))
    code = found["code"]
    assert found["module"] == "fc" and code["class_a"] == "torch.nn.modules.linear:Linear"
    assert (code["source"], code["forward_elsewhere"]) == ("differs", True)
    assert Path(code["site_b"]).name.startswith("train.py:") and "nn/modules/linear.py:" in code["site_a"]


@pytest.mark.parametrize("case", ["without_source", "text"])
def test_what_has_no_source_is_not_the_same(runs, case):
    code = code_of(runs("plain"), runs(case))["code"]
    assert code["source"] == "unknown"
    named = "relu in the second run, which has no source" if case == "without_source" else "<string>"
    assert named in code["why_unknown"]


def test_an_inherited_forward_is_the_same(runs):
    a, b = runs("plain"), runs("inherited")
    assert tenscope_json("diff", a, b)["verdict"] == "equal"


class Own(torch.nn.Module):
    def forward(self, x):
        return x


class Renewed(Own):
    forward = functools.partialmethod(Own.forward)  # another object whenever it is asked for


def test_a_forward_is_told_once(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for module in (Own(), Renewed()):
            with tenscope.trace(module):
                for _ in range(3):
                    module(torch.ones(2))
    told = ["class_path" in event.meta for event in tenscope.open(run.path).events(kind="enter")]
    assert told == [True, False, False] * 2
