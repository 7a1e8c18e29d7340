"""Tensor Tracker's document, and what its drop-in must do right where the old tool did not."""

import importlib
import logging
import os
import re
import sys
import threading

import numpy as np
import pytest


@pytest.fixture
def ttracker(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LTAG", raising=False)
    monkeypatch.delitem(sys.modules, "tenscope.compat.ttracker", raising=False)
    logging.getLogger("tenscope.compat.ttracker").handlers.clear()
    return importlib.import_module("tenscope.compat.ttracker")


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def without_head_and_time(output):
    """Nor the numbers that follow a tensor's dtype."""
    return [line.split(" | sum=")[0] for line in output if "┌──" not in line and "耗时" not in line]


def test_auto_diff(ttracker, capsys):
    torch = pytest.importorskip("torch")

    class Dataset:
        @ttracker.auto_diff
        def get(self, examples, index, flag=True, *args, **kwargs):
            return torch.zeros(3, 4)

    result = Dataset().get([1, 2, 3, 4], 113, k=1)
    here = sys._getframe().f_lineno - 1
    head, *rest = lines(capsys)
    first = Dataset.get.__wrapped__.__code__.co_firstlineno
    file = os.path.basename(__file__)
    start = f"┌── [{file}:{first}] 函数 [Dataset.get] 被调用于 test_auto_diff:{here} ({file}:{here} <- "
    assert head.startswith(start) and re.fullmatch(r"\(\S+:\d+ <- \S+:\d+ <- \S+:\d+\)", head[head.rindex("(") :])
    assert rest[:-1] == [
        "├─ 输入 [Var] examples@0 len(value): 4",
        "├─ 输入 [Var] index@0 value: 113",
        "├─ 输入 [Var] kwargs@0 len(value): 1",
        "└─ 输出 shape=torch.Size([3, 4])",
    ]
    assert re.fullmatch(r"└─ 耗时 Dataset.get 执行耗时: \d+\.\d{4} 秒", rest[-1])
    assert result.shape == (3, 4)


def test_nesting_outputs_and_bad_arguments(ttracker, capsys):
    @ttracker.auto_diff
    def inner(a):
        return a, {"x": 1}, [a]

    @ttracker.auto_diff
    def outer(a):
        inner(a)
        return np.ones((2, 3), np.uint8)

    outer(np.zeros(4))
    assert without_head_and_time(lines(capsys)) == [
        "├─ 输入 [Tensor] a@0 → shape=(4,) | dtype=float64",
        "│   ├─ 输入 [Tensor] a@0 → shape=(4,) | dtype=float64",
        "│   └─ 输出 [Tensor] 0@0 → shape=(4,) | dtype=float64",
        "│   └─ 输出 [Var] 1@0 len(value): 1",
        "│   └─ 输出 [Var] 2@0 len(value): 1",
        "└─ 输出 shape=(2, 3)",
    ]
    with pytest.raises(TypeError):
        outer()
    assert len(lines(capsys)) == 1
    with pytest.raises(ZeroDivisionError):
        ttracker.auto_diff(lambda: 1 / 0)()
    assert ttracker.IndentManager.get_indent() == ""


def test_call_chain_has_no_frames_of_the_tool(ttracker, capsys):
    @ttracker.auto_diff
    def inner():
        return 1

    @ttracker.var_tracker("x")
    def outer():
        x = inner()
        return x

    outer()
    heads = [line for line in lines(capsys) if "┌──" in line]
    assert len(heads) == 2 and not any("ttracker.py" in head.replace("test_compat_ttracker.py", "") for head in heads)
    assert "函数 [outer] 被调用于 test_call_chain" in heads[0] and "函数 [inner] 被调用于 outer:" in heads[1]


def test_var_tracker(ttracker, capsys):
    torch = pytest.importorskip("torch")

    def helper(video):
        video = video * 2
        return video

    @ttracker.var_tracker("video")
    def transform_video(video):
        video = torch.from_numpy(video)
        video = video.permute(2, 0, 1)
        video = helper(video)
        video[0] = 1
        return video

    assert transform_video(np.zeros((4, 5, 3), np.uint8)).shape == (3, 4, 5)
    first = transform_video.__wrapped__.__code__.co_firstlineno
    below = helper.__code__.co_firstlineno
    shape = "shape=torch.Size([3, 4, 5]) | dtype=torch.uint8"
    assert without_head_and_time(lines(capsys)) == [
        "├─ 输入 [Tensor] video@0 → shape=(4, 5, 3) | dtype=uint8",
        f"│   ├─ [Tensor] video@{first + 2} → shape=(4, 5, 3) | dtype=uint8",
        f"│   ├─ [Tensor] video@{first + 3} → shape=torch.Size([4, 5, 3]) | dtype=torch.uint8",
        f"│   ├─ [Tensor] video@{first + 4} → {shape}",
        f"│   ├─ [Tensor] video@{first + 6} → {shape}",
        "└─ 输出 shape=torch.Size([3, 4, 5])",
    ]
    assert below  # the helper's `video` held the same zeros: no change


def test_var_tracker_below_and_after(ttracker, capsys):
    def inner():
        x = "inner"
        return x

    @ttracker.var_tracker("x")
    def outer():
        x = 1
        inner()
        x = 2
        inner()
        x = float("nan")
        y = x
        x = [1]
        x.append(y)

    outer()
    shown = [line.split("] ")[1] for line in without_head_and_time(lines(capsys))]
    at = [s.split("@")[1].split(" ", 1)[1] for s in shown]
    assert at == [
        "value: 1",
        "value: inner",
        "value: 1",
        "value: 2",
        "value: inner",
        "value: 2",
        "value: nan",
        "len(value): 1",
        "len(value): 2",
    ]


def test_values_that_killed_the_old_tool(ttracker, capsys):
    torch = pytest.importorskip("torch")

    @ttracker.var_tracker("x")
    def f():
        x = torch.tensor([1, 2])
        x = torch.tensor([True])
        x = torch.zeros(0)
        x = np.zeros(0)
        x = torch.tensor([1 + 2j])
        x = [torch.zeros(2), torch.zeros(3)]
        x = [torch.zeros(3), torch.zeros(2)]
        x = (torch.ones(2, requires_grad=True) * 3).sum()
        x = threading.Lock()
        x = torch.full((2,), float("nan"))
        y = x.clone()
        x = y
        return 1

    before = sys.gettrace()
    assert f() == 1
    assert sys.gettrace() is before
    assert len([line for line in lines(capsys) if "x@" in line]) == 9

    @ttracker.var_tracker("x")
    def fails():
        x = 1
        raise ValueError(x)

    with pytest.raises(ValueError):
        fails()
    assert sys.gettrace() is before and ttracker.IndentManager.get_indent() == ""


def test_nested_trackers(ttracker, capsys):
    @ttracker.var_tracker("b")
    def inner():
        b = 1
        return b

    @ttracker.var_tracker("a")
    def outer():
        a = 1
        inner()
        a = 2
        return a

    outer()
    output = lines(capsys)
    assert sum("[Var] a@" in line for line in output) == 2
    assert next(line for line in output if "[Var] b@" in line).startswith("│   │   ├─ [Var] b@")


def test_nested_trackers_of_one_name_report_it_once(ttracker, capsys):
    @ttracker.var_tracker("video")
    def crop(video):
        video = video[:2]
        return video

    @ttracker.var_tracker("video")
    def load(video):
        video = video * 2
        video = crop(video)
        return video

    load(np.ones((4, 3)))
    first, below = load.__wrapped__.__code__.co_firstlineno, crop.__wrapped__.__code__.co_firstlineno
    assert [line for line in without_head_and_time(lines(capsys)) if "├─ [" in line] == [
        f"│   ├─ [Tensor] video@{first + 2} → shape=(4, 3) | dtype=float64",
        f"│   ├─ [Tensor] video@{first + 3} → shape=(4, 3) | dtype=float64",
        f"│   │   ├─ [Tensor] video@{below + 2} → shape=(4, 3) | dtype=float64",
        f"│   │   ├─ [Tensor] video@{below + 3} → shape=(2, 3) | dtype=float64",
    ]


def test_a_tracked_function_that_calls_itself_reports_once(ttracker, capsys):
    @ttracker.var_tracker("n")
    def count(n):
        n -= 1
        return count(n) if n else n

    count(3)
    shown = [line.strip("│ ") for line in lines(capsys) if "├─ [Var] n@" in line]
    first = count.__wrapped__.__code__.co_firstlineno
    going_down = [(2 + k, n - k) for n in (3, 2, 1) for k in (0, 1)]
    coming_back = [(3, 1), (3, 2)]
    assert shown == [f"├─ [Var] n@{first + at} value: {value}" for at, value in going_down + coming_back]


def test_names_of_the_tools_own_variables_can_be_tracked(ttracker, capsys):
    @ttracker.auto_diff
    def inner(a):
        return a

    @ttracker.var_tracker("args", "kwargs", "bound", "result")
    def outer():
        return inner(1)

    outer()
    assert not [line for line in lines(capsys) if "├─ [" in line]


def test_log2file_and_handler(ttracker, capsys, tmp_path):
    logger = logging.getLogger("mine")
    logger.setLevel(logging.INFO)
    ttracker.logger.addHandler(ttracker.h4logger())
    xxx = 5
    ttracker.log2file(f"xx is {xxx}")
    assert lines(capsys) == ["xx is 5"]
    file = tmp_path / "logs" / "NOTAG" / f"process_{os.getpid()}_thread_{threading.get_ident()}.log"
    content = file.read_text(encoding="utf-8").splitlines()
    assert [line.split(" - ", 2)[1:] for line in content] == [["INFO", "Main process started."], ["INFO", "xx is 5"]]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - ", content[0])

    os.environ["LTAG"] = "tag"
    try:
        logger.addHandler(ttracker.h4logger())
    finally:
        del os.environ["LTAG"]
    thread = threading.Thread(target=lambda: logger.info("from a thread"))
    thread.start()
    thread.join()
    (name,) = os.listdir(tmp_path / "logs" / "tag")
    assert f"process_{os.getpid()}_thread_" in name
    logger.handlers.clear()


def test_document_forward_hook(ttracker, capsys):
    torch = pytest.importorskip("torch")

    def check_hook(module, input, output):
        ttracker._log_change(f"{module.__class__.__name__}", "input", input, "", 0)
        ttracker._log_change(f"{module.__class__.__name__}", "output", output, "", 0)

    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    for _name, layer in model.named_modules():
        layer.register_forward_hook(check_hook)
    model(torch.zeros(1, 2))
    output = model(torch.zeros(1, 2)).detach()
    assert lines(capsys)[:4] == lines_of_hook(output, "Linear") + lines_of_hook(output, "Sequential")


def lines_of_hook(output, kind):
    numbers = {"sum": output.double().sum(), "mean": output.double().mean(), "min": output.min(), "max": output.max()}
    shown = " | ".join(f"{name}={value.item():.7g}" for name, value in numbers.items())
    return [
        f"{kind} [Var] input@0 len(value): 1",
        f"{kind} [Tensor] output@0 → shape=torch.Size([1, 3]) | dtype=torch.float32 | {shown}",
    ]


def test_what_is_not_finite_is_counted(ttracker, capsys):
    ttracker._log_change("Norm", "output", np.array([1.0, np.nan, -np.inf, 2.0]), "", 0)
    ttracker._log_change("Norm", "output", np.zeros(0), "", 0)
    ttracker._log_change("Norm", "output", np.array(["text"]), "", 0)
    assert lines(capsys) == [
        "Norm [Tensor] output@0 → shape=(4,) | dtype=float64 | sum=3 | mean=1.5 | min=1 | max=2 | nan=1 | inf=1",
        "Norm [Tensor] output@0 → shape=(0,) | dtype=float64",
        "Norm [Tensor] output@0 → shape=(1,) | dtype=<U4",
    ]


def test_as_many_runs_as_are_allowed_pass(ttracker, capsys):
    for _ in range(2):
        for _ in range(3):
            ttracker.check_run_count("three calls", 3)
        with pytest.raises(SystemExit) as ended:
            ttracker.check_run_count("three calls", 3)
        assert ended.value.code == 1
    assert lines(capsys) == [f"three calls: {n}" for n in (1, 2, 3, 4)] * 2


def test_generators_still_yield(ttracker):
    @ttracker.auto_diff
    def numbers(n):
        yield from range(n)

    assert list(numbers(3)) == [0, 1, 2]


def test_local_function_is_no_method(ttracker, capsys):
    @ttracker.auto_diff
    def local():
        return None

    local()
    assert "函数 [local] " in lines(capsys)[0]
