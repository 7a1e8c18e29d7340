"""`tenscope repro RUN --call MODULE`: a folder that makes one recorded call again, without tenscope."""

import contextlib
import io
import json
import runpy
import sys

import pytest

torch = pytest.importorskip("torch")

import model_zoo  # noqa: E402
import tenscope  # noqa: E402
from hand_written_run import tenscope as tenscope_cli  # noqa: E402
from launched import start, tenscope_run, write  # noqa: E402
from tenscope.metadata.repro import Trouble  # noqa: E402
from tenscope.metadata.reproducer import make_case  # noqa: E402
from torch import nn  # noqa: E402


def run_case(folder, *words):
    """Exit code and output of repro.py, in this process: importing torch anew for each would take minutes."""
    before, argv, path, hook = set(sys.modules), sys.argv, list(sys.path), sys.excepthook
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    sys.argv = ["repro.py", *words]
    sys.path.insert(0, str(folder))
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(folder / "repro.py"), run_name="__main__")
    finally:
        sys.argv, sys.path[:], sys.excepthook = argv, path, hook
        torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
        for name in set(sys.modules) - before:
            if name == "from_recording" or name.endswith("_code"):
                del sys.modules[name]
    return ended.value.code, output.getvalue()


def calls_of(run):
    """Every module call of a run: path and number."""
    return [(event.name or ".", event.call) for event in tenscope.open(run).events(kind="enter") if event.root]


def check_all(run, folder, at_least):
    """Every recorded call is made again and gives what was recorded."""
    calls = calls_of(run)
    assert len(calls) >= at_least
    for number, (path, call) in enumerate(calls):
        case = make_case(run, path, folder / str(number), index=call)
        assert case.missing == [], path
        code, output = run_case(case.folder)
        assert code == 0, f"{path} call {call}:\n{output}"
        assert output.count("equal in bits") + output.count(": equal\n") == len(case.call.outputs) > 0, output


def traced(folder, model, *calls, train=False, **options):
    model.train(train)
    options = {"params": True, "buffers": True, **options}
    with tenscope.Run(folder, name="run", strict=True), tenscope.trace(model, **options):
        for arguments in calls:
            model(*arguments) if isinstance(arguments, tuple) else model(**arguments)
    return folder / "run"


ZOO = {
    "gpt": (lambda: model_zoo.GPT(moe=True), [(torch.arange(6).view(2, 3),), (torch.arange(3).view(1, 3), 2)], 30),
    "resnet": (model_zoo.ResNet, [(torch.linspace(-1, 1, 384).view(2, 3, 8, 8),)] * 2, 30),
    "unet": (model_zoo.UNet, [(torch.linspace(-1, 1, 256).view(2, 2, 8, 8),)], 8),
    "tagger": (model_zoo.Tagger, [(torch.arange(8).view(2, 4),)], 4),
}


@pytest.mark.parametrize("which", ZOO)
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_every_module_of_the_tests_models(tmp_path, which, train):
    make, calls, at_least = ZOO[which]
    torch.manual_seed(0)
    check_all(traced(tmp_path, make(), *calls, train=train), tmp_path, at_least)


def gpt2():
    config = transformers_of().GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    ids = torch.arange(10).view(2, 5)
    return transformers_of().GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids, "use_cache": False}


def llama():
    config = transformers_of().LlamaConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32,
    )  # fmt: skip
    return transformers_of().LlamaForCausalLM(config), {"input_ids": torch.arange(10).view(2, 5), "use_cache": False}


def bert():
    config = transformers_of().BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return transformers_of().BertModel(config), {"input_ids": torch.arange(10).view(2, 5), "attention_mask": mask}


def transformers_of():
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("make", [gpt2, llama, bert])
def test_every_module_of_transformers_models(tmp_path, make):
    torch.manual_seed(0)
    model, arguments = make()
    with torch.no_grad():
        check_all(traced(tmp_path, model, arguments), tmp_path, 20)


# ---- a script of the user's

PROGRAM = """
import argparse
import sys
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from helpers import Scaled

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
arguments = parser.parse_args()
SLOPE = 0.5 * 3
torch.manual_seed(0)


class Config:
    def __init__(self, width):
        self.width, self.scale, self.act = width, float("inf"), F.gelu


def squashed(x, slope):
    return torch.tanh(x * slope)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = nn.BatchNorm1d(config.width)
        self.fc = Scaled(config.width)
        self.act = partial(squashed, slope=SLOPE)
        self.shift = torch.linspace(0, 1, config.width)
        self.hidden = [self.fc]
        self.maybe = None

    def forward(self, x, *parts, gain=1.0, mask=None, mode="plain", extra=None):
        x = self.config.act(self.fc(self.norm(x))) * gain + self.shift[: arguments.width]
        for part in parts:
            x = x + part[0] * part[1]["weight"]
        if mask is not None:
            x = x.masked_fill(mask, 0)
        if mode == "fail":
            raise ValueError("mode fail")
        return {"out": self.act(x), "size": len(parts), "mode": mode}


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.function = lambda x: x * 2
        self.unused = lambda x: x

    def forward(self, x, cache):
        return self.function(x) + cache.value


class Cache:
    value = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        config = Config(arguments.width)
        self.blocks = nn.ModuleList([Block(config), Block(config)])
        self.again = self.blocks[0]
        self.noisy, self.odd = Noisy(), Odd()

    def forward(self, x):
        first = self.blocks[0](x, (x, {"weight": 2.0}), [x, {"weight": 0.5}], gain=0.5, mask=x > 1)["out"]
        second = self.again(self.blocks[1](first, mode="other", extra=None)["out"])["out"]
        try:
            self.blocks[1](first, mode="fail")
        except ValueError:
            pass
        return self.odd(self.noisy(second), Cache())


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(6, arguments.width)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
    net.eval()(torch.randn(6, arguments.width))
print("the program ran")
"""

HELPERS = """
import torch
from torch import nn


class Scaled(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls.clone()
"""


@pytest.fixture(scope="module")
def script_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    write(folder, PROGRAM, "train.py")
    write(folder, HELPERS, "helpers.py")
    done = tenscope_run(folder, "--name", "run", "train.py", "--width", "4", env={"TENSCOPE_METADATA": "1"})
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "run"


def test_every_call_of_a_script_with_the_state_of_that_moment(script_run, tmp_path):
    """Parameters after each optimizer step, buffers that change in each call, autocast, nests of arguments."""
    calls = [(path, call) for path, call in calls_of(script_run) if not path.startswith(("noisy", "odd", "."))]
    assert len(calls) == 4 * 4 * 3  # 4 steps, 4 calls of blocks, each with a norm and a linear layer
    for number, (path, call) in enumerate(calls):
        case = make_case(script_run, path, tmp_path / str(number), index=call)
        code, output = run_case(case.folder)
        assert (code, case.missing) == (0, []), f"{path} call {call}:\n{output}"
        assert "DIFFERS" not in output
        if path.startswith("blocks") and path.count(".") == 1:
            raised = case.call.raised
            assert ("mode fail" in output) == bool(raised)
            assert raised or "output.mode: equal\n" in output


def test_it_needs_neither_tenscope_nor_the_run(script_run, tmp_path):
    case = make_case(script_run, "blocks.0", tmp_path / "case", step=2)
    text = (case.folder / "repro.py").read_text()
    assert len(text.splitlines()) < 50 and "tenscope" not in text.replace("not tenscope", "")
    code = (case.folder / "train_code.py").read_text()
    assert "class Block" in code and "SGD" not in code and "Noisy" not in code
    # A tenscope that cannot be imported, and another folder: nothing of here is used.
    write(tmp_path, "raise ImportError('no tenscope here')", "tenscope.py")
    done = start("/", case.folder / "repro.py", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "output.out: equal in bits" in done.stdout and "the program ran" not in done.stdout
    (case.folder / "train_code.py").unlink()
    done = start("/", case.folder / "repro.py")
    assert done.returncode == 2 and "No module named 'train_code'" in done.stderr


def test_the_tensors_are_safetensors_that_others_read(script_run, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    case = make_case(script_run, "blocks.0", tmp_path / "case", step=1)
    state = safetensors.load_file(case.folder / "state.safetensors")
    recorded = tenscope.open(script_run)
    assert torch.equal(state["blocks.0.fc.weight"], recorded["blocks.0.fc.weight", 0].torch())  # after step 0
    inputs = safetensors.load_file(case.folder / "inputs.safetensors")
    assert torch.equal(inputs["input.0"], recorded["blocks.0.input.0", 1, 2].torch())
    assert inputs["input.mask"].dtype == torch.bool


def test_state_that_safetensors_has_written_again(script_run, tmp_path):
    """Who changes a parameter writes the file with safetensors, which knows nothing of our metadata."""
    safetensors = pytest.importorskip("safetensors.torch")
    case = make_case(script_run, "blocks.0", tmp_path / "case")
    path = case.folder / "state.safetensors"
    state = safetensors.load_file(path)
    safetensors.save_file(state, path)
    code, output = run_case(case.folder)
    assert code == 0 and "equal in bits" in output
    state["blocks.0.fc.weight"] = state["blocks.0.fc.weight"] * 1.5
    safetensors.save_file(state, path)
    code, output = run_case(case.folder)
    assert code == 1 and "DIFFERS" in output and "does not reproduce" in output


def test_code_that_has_changed_since(script_run, tmp_path):
    """A class of the script is as the run kept it; of an imported one it is told."""
    folder = script_run.parent.parent
    try:
        write(folder, PROGRAM.replace("torch.tanh(x", "torch.sin(x"), "train.py")
        write(folder, HELPERS + "\n", "helpers.py")
        case = make_case(script_run, "blocks.0", tmp_path / "case")
    finally:
        write(folder, PROGRAM, "train.py")
        write(folder, HELPERS, "helpers.py")
    assert "torch.tanh(x" in (case.folder / "train_code.py").read_text()
    assert case.remarks == ["helpers.py is not what it was when the run was recorded, and is imported so"]
    assert run_case(case.folder)[0] == 0


def test_another_result_is_told(script_run, tmp_path):
    case = make_case(script_run, "blocks.0", tmp_path / "case")
    script = case.folder / "repro.py"
    text = script.read_text()
    script.write_text(text.replace("gain=0.5", "gain=0.25"))
    code, output = run_case(case.folder)
    assert code == 1 and "output.out: DIFFERS" in output and "does not reproduce" in output
    script.write_text(text.replace("gain=0.5", "gain=0.5000002"))
    code, output = run_case(case.folder)
    assert code == 0 and "output.out: the same but for rounding: by" in output
    script.write_text(text.replace("gain=0.5", "gain=0.50001"))
    code, output = run_case(case.folder)
    assert code == 1 and "up to 16 are rounding" in output, "no unit that is moved by half makes so much"
    script.write_text(text.replace("gain=0.5", "gain=0.5, mode='other'"))
    code, output = run_case(case.folder)
    assert code == 1 and "output.mode: 'plain' was recorded, now it is 'other'" in output


class Steep(nn.Module):
    def forward(self, x):
        return x.mul_(100).sin()


def test_a_call_that_amplifies_rounding_is_measured(tmp_path):
    """Its inputs are changed in place, so each measurement begins with what was given."""
    safetensors = pytest.importorskip("safetensors.torch")
    given = torch.linspace(0.5, 1, 50)
    case = make_case(traced(tmp_path, Steep(), (given.clone(),)), ".", tmp_path / "case")
    for far, expected in ((0, "equal in bits"), (1, "the same but for rounding"), (30, "DIFFERS")):
        moved = given + far * 2**-24
        safetensors.save_file({"input.0": moved}, case.folder / "inputs.safetensors")
        code, output = run_case(case.folder)
        assert f"output: {expected}" in output and code == (expected == "DIFFERS"), output


def test_random_numbers_are_told(script_run, tmp_path):
    case = make_case(script_run, "noisy", tmp_path / "train")
    assert any("random numbers (noisy.drop)" in remark for remark in case.remarks)
    torch.manual_seed(12345)
    code, output = run_case(case.folder)
    assert code == 2 and "draws random numbers" in output
    code, _ = run_case(make_case(script_run, "noisy", tmp_path / "eval", step=3).folder)
    assert code == 0


def test_what_is_missing_is_told(script_run, tmp_path):
    done = tenscope_cli("repro", script_run, "--call", "odd", "-o", tmp_path / "case", "--json", check=2)
    told = json.loads(done.stdout)
    assert any(entry.startswith("argument 1: a __main__.Cache") for entry in told["missing"])
    assert any(entry.startswith("odd.function: a function or class that cannot be") for entry in told["remarks"])
    text = (tmp_path / "case" / "repro.py").read_text()
    assert "It cannot work as it stands:" in text and "odd.function" in text


def test_the_command(script_run, tmp_path):
    done = tenscope_cli("repro", script_run, "--call", "blocks.1", "--step", "1", "-o", tmp_path / "case")
    assert "blocks.1 (Block), step 1" in done.stdout and "repro.py" in done.stdout
    done = tenscope_cli("repro", script_run, "--call", "blocks.1", "-o", tmp_path / "case", check=2)
    assert f"the folder is not empty: {tmp_path / 'case'}" in done.stderr
    done = tenscope_cli("repro", script_run, "--call", "block.1", "-o", tmp_path / "x", check=2)
    assert "no call of a module block.1 was recorded; did you mean blocks.1" in done.stderr
    done = tenscope_cli("repro", script_run, "--call", "blocks.1", "--step", "9", "-o", tmp_path / "x", check=2)
    assert "blocks.1 was not called in step 9; it was in 0-3" in done.stderr
    done = tenscope_cli("repro", script_run, "--call", "blocks.1", "--call-index", "99", "-o", tmp_path / "x", check=2)
    assert "blocks.1 has no call 99; it has 0-7" in done.stderr
    done = tenscope_cli("repro", script_run, "--step", "1", check=2)
    assert "--call" in done.stderr
    assert not (tmp_path / "x").exists()


def test_without_values_it_says_what_to_do(tmp_path):
    run = traced(tmp_path, nn.Linear(2, 2), (torch.ones(1, 2),), values="stats")
    with pytest.raises(Trouble, match=r"statistics only: .* --steps 0:1 and without --stats"):
        make_case(run, ".", tmp_path / "case")
    run = traced(tmp_path / "no", nn.Linear(2, 2), (torch.ones(1, 2),), outputs=False)
    with pytest.raises(Trouble, match="nothing that this call of Linear#0 returned was recorded"):
        make_case(run, ".", tmp_path / "case")
    run = traced(tmp_path / "inputs", nn.Linear(2, 2), (torch.ones(1, 2),), inputs=False, params=False)
    assert make_case(run, ".", tmp_path / "case").missing == [
        "Linear#0: its parameter or buffer weight was not recorded before the call",
        "Linear#0: its parameter or buffer bias was not recorded before the call",
        "argument 0: it was not recorded",
    ]


def test_a_cache_among_the_arguments_is_not_guessed(tmp_path):
    torch.manual_seed(0)
    model, arguments = gpt2()
    with torch.no_grad():
        run = traced(tmp_path, model, {**arguments, "use_cache": True})
    case = make_case(run, "transformer.h.1.attn", tmp_path / "case")
    assert [entry.partition(":")[0] for entry in case.missing] == ["argument past_key_values"]
    assert "DynamicCache" in case.missing[0]


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.scale = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.old = nn.utils.spectral_norm(nn.Linear(8, 8))
        self.list = nn.ParameterList([torch.ones(8)])

    def forward(self, x):
        return self.old(self.scale(self.encoder(x))) * self.list[0]


def test_modules_of_torch_that_are_built_oddly(tmp_path):
    torch.manual_seed(0)
    with torch.no_grad():
        run = traced(tmp_path, Forked(), (torch.randn(2, 3, 8),))
    for path in ("encoder", "encoder.layers.0", "encoder.layers.0.self_attn"):
        if (path, 0) in calls_of(run):
            assert run_case(make_case(run, path, tmp_path / path).folder)[0] == 0
    case = make_case(run, "scale", tmp_path / "scale")  # of a class that torch made for it
    assert any("cannot be imported" in entry for entry in case.missing)
    case = make_case(run, "old", tmp_path / "old")
    assert any("forward hooks" in entry for entry in case.remarks)


def test_a_program_that_is_a_module_of_a_package(tmp_path):
    package = tmp_path / "project" / "package"
    package.mkdir(parents=True)
    write(package, "", "__init__.py")
    write(package, "FACTOR = 3", "constants.py")
    text = "from __future__ import annotations\nimport sys\nimport torch\nfrom torch import nn\n"
    text += "from .constants import FACTOR\nSHIFT = float(sys.argv[1])\n"
    text += "class Net(nn.Module):\n    def forward(self, x):\n        return x * FACTOR + SHIFT\n"
    write(package, text + "Net()(torch.ones(2))\nprint('the program ran')\n", "train.py")
    words = ["--name", "run", "-m", "package.train", "0.5"]
    done = tenscope_run(tmp_path / "project", *words, env={"TENSCOPE_METADATA": "1"})
    assert done.returncode == 0, done.stderr
    case = make_case(tmp_path / "project" / "runs" / "run", ".", tmp_path / "case")
    assert run_case(case.folder) == (0, "output: equal in bits\nreproduces what was recorded\n")
