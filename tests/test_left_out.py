"""Limits that cut something off leave a note in the run that says what and how much."""

import threading

import pytest
import tenscope
from launched import notes

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        yield run


def left_out(run):
    run.flush()
    return {e.meta["what"]: e.meta for e in notes(tenscope.open(run.path), "left_out")}


class Takes(nn.Module):
    def forward(self, *args, **kwargs):
        return args[0] if args else kwargs


def nested(levels):
    value = 1.0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("size", "lost"), [(1000, 0), (1001, 1), (5000, 4000)])
@pytest.mark.parametrize("kind", [list, lambda items: {str(i): x for i, x in enumerate(items)}])
def test_members_of_a_nest(run, size, lost, kind):
    with tenscope.trace(Takes()) as trace:
        for _ in range(2):
            trace.model(kind([float(i) for i in range(size)]))
    run.flush()
    events = tenscope.open(run.path).events(kind="value")
    assert len([e for e in events if e.io == "input"]) == 2 * (size - lost)
    found = left_out(run)
    assert [found[what]["count"] for what in found] == ([lost, lost] if lost else [])
    assert set(found) == ({"input", "output"} if lost else set()), "once for the module, not for each call"


def test_depth_of_a_nest_and_a_nest_in_itself(run):
    around = []
    around += [around, around]
    with tenscope.trace(Takes(), outputs=False) as trace:
        trace.model(nested(60))
        assert left_out(run) == {}
        trace.model(around)
    assert left_out(run)["input"]["count"] >= 1


def test_objects_that_are_not_looked_into(run):
    class Cache:
        pass

    with tenscope.trace(Takes()) as trace:
        trace.model(torch.ones(1), past=Cache(), more={"x": Cache(), "y": None})
    found = left_out(run)["input objects"]
    assert found["names"] == ["input.past", "input.more.x"] and found["count"] == 2 and "Cache" in found["reason"]


def test_gradients_of_a_graph_that_is_too_large(run, monkeypatch):
    from tenscope.probes import grads

    class Long(nn.Module):
        def forward(self, x):
            for _ in range(30):
                x = x * 2 + 1
            return x

    x = torch.ones(2, requires_grad=True)
    with tenscope.trace(Long(), grads=True) as trace:
        trace.model(x * 1).sum().backward()
        assert left_out(run) == {}
        monkeypatch.setattr(grads, "MAX_NODES", 50)
        trace.model(x * 1).sum().backward()
    assert left_out(run)["grad_input"] == {
        "what": "grad_input",
        "limit": 50,
        "count": 1,
        "reason": "the call's graph has too many nodes to look for the gradients of its inputs",
    }
    assert len([e for e in tenscope.open(run.path).events() if e.io == "grad_input"]) == 1


class Deep(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = levels

    def forward(self, x):
        deep = nested(self.levels)
        return x, deep


@pytest.mark.parametrize(("levels", "cut"), [(15, False), (30, True)])
def test_changes_deep_in_a_local_variable(run, levels, cut):
    with tenscope.trace(Deep(levels), inputs=False, outputs=False, locals=["forward.deep"]) as trace:
        trace.model(torch.ones(1))
        trace.model(torch.ones(1))
    found = left_out(run)
    assert set(found) == ({"changes"} if cut else set())
    if cut:
        assert found["changes"]["name"] == "forward.deep" and found["changes"]["limit"] == 20


def test_what_gather_cannot_copy(run):
    class Stubborn:
        def __init__(self):
            self.lock = threading.Lock()

        def __reduce_ex__(self, _):
            raise TypeError("no")

    class Returns(nn.Module):
        def forward(self, x):
            held = [Stubborn(), x]
            return held

    model = Returns()
    with tenscope.gather(model, ["forward.held"]) as gathered:
        model(torch.ones(1))
        model(torch.ones(1))
    assert isinstance(gathered["forward.held"].values[0][0], str)
    found = left_out(run)["values"]
    assert found["name"] == "forward.held" and found["count"] == 1 and "Stubborn" in found["reason"]
