"""tenscope.trace: what is recorded, and that nothing else happens."""

import copy
import gc
import threading

import pytest
import tenscope
import torch
import torch.nn.functional as F
from model_zoo import GPT, Observer, ResNet, Tagger, UNet
from torch import nn
from traced import events


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        yield run


def inputs_outputs(run):
    return [(e.scope, e.io, e.torch()) for e in events(run) if e.io in ("input", "output") and e.is_tensor]


def assert_same(recorded, seen):
    assert [(path, io, tuple(v.shape), v.dtype) for path, io, v in recorded] == [
        (path, io, tuple(v.shape), v.dtype) for path, io, v in seen
    ]
    for (path, io, a), (_, _, b) in zip(recorded, seen, strict=True):
        assert torch.equal(a, b) or torch.equal(a.nan_to_num(), b.nan_to_num()), (path, io)


def tokens(*shape, vocab=20):
    return torch.randint(0, vocab, shape)


MODELS = {
    "gpt": (lambda: GPT(), lambda: (tokens(2, 7),)),
    "moe": (lambda: GPT(moe=True), lambda: (tokens(2, 7),)),
    "resnet": (lambda: ResNet(), lambda: (torch.randn(2, 3, 8, 8),)),
    "unet": (lambda: UNet(), lambda: (torch.randn(2, 2, 8, 8),)),
    "lstm": (lambda: Tagger(), lambda: (tokens(2, 5),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_sees_what_plain_hooks_see(run, name):
    torch.manual_seed(0)
    make_model, make_input = MODELS[name]
    model = make_model()
    observer = Observer(model)
    with tenscope.trace(model):
        model(*make_input())
        model.eval()
        with torch.no_grad():
            model(*make_input())
    assert_same(inputs_outputs(run), observer.flat())


def test_kv_cache_decoding_with_keyword_arguments(run):
    model = GPT().eval()
    observer = Observer(model)
    with tenscope.trace(model, buffers=True), torch.inference_mode():
        model(tokens(1, 4), start=0)
        model(tokens(1, 1), start=4)
    assert_same(inputs_outputs(run), observer.flat())
    starts = [e.value for e in events(run, name="blocks.0.attn.input.start")]
    assert starts == [0, 4]
    assert events(run, name="blocks.0.attn.input.start")[0].meta == {"index": "start"}
    caches = events(run, name="blocks.1.attn.cache_k", io="buffer")
    assert [e.call for e in caches] == [0, 1] and torch.equal(caches[1].torch(), model.blocks[1].attn.cache_k)


def train(model, make_loss, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = make_loss(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    return losses


def loss_of(model):
    if isinstance(model, GPT):
        ids = tokens(2, 8)
        return F.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
    if isinstance(model, Tagger):
        return model(tokens(2, 5)).square().mean()
    return model(torch.randn(2, 3 if isinstance(model, ResNet) else 2, 8, 8)).square().mean()


@pytest.mark.parametrize("name", MODELS)
def test_training_is_bitwise_the_same(run, name):
    torch.manual_seed(0)
    plain = MODELS[name][0]()
    traced = copy.deepcopy(plain)
    torch.manual_seed(1)
    plain_losses = train(plain, loss_of)
    torch.manual_seed(1)
    with tenscope.trace(traced, grads=True, param_grads=True, params=True):
        traced_losses = train(traced, loss_of)
    assert all(torch.equal(a, b) for a, b in zip(plain_losses, traced_losses, strict=True))
    for (key, a), b in zip(plain.named_parameters(), traced.parameters(), strict=True):
        assert torch.equal(a, b) and torch.equal(a.grad, b.grad), key
    for a, b in zip(plain.buffers(), traced.buffers(), strict=True):
        assert torch.equal(a, b)
    names = [name for name, _ in traced.named_parameters()]
    for step in range(3):
        grads = events(run, io="grad", step=step)
        params = events(run, io="param", phase="optimizer", step=step)
        assert [e.name for e in grads] == [f"{name}.grad" for name in names]
        assert [e.name for e in params] == names
    for e, parameter in zip(grads, traced.parameters(), strict=True):
        assert torch.equal(e.torch(), parameter.grad)
    for e, parameter in zip(params, traced.parameters(), strict=True):
        assert torch.equal(e.torch(), parameter)


@pytest.mark.parametrize("include", [None, "blocks.0.*"])
def test_parameter_gradients_alone(run, include):
    torch.manual_seed(0)
    model = GPT()
    with tenscope.trace(model, param_grads=True, inputs=False, outputs=False, include=include):
        for step in range(2):
            run.step(step)
            model.zero_grad()
            loss_of(model).backward()
        with torch.no_grad():
            model(tokens(2, 7))
    wanted = {name: p for name, p in model.named_parameters() if include is None or name.startswith("blocks.0.")}
    for step in range(2):
        assert [e.name for e in events(run, io="grad", step=step)] == [f"{name}.grad" for name in wanted]
    for e, parameter in zip(events(run, io="grad", step=1), wanted.values(), strict=True):
        assert torch.equal(e.torch(), parameter.grad)
    assert {e.io for e in events(run, kind="value")} == {"grad"}


def test_gradients_of_outputs_and_inputs_are_those_of_the_module_alone(run):
    """Judged by torch.autograd.grad: x has three users, so the tensor's own gradient would be the sum of all."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.act(self.q(x)) * self.k(x) + x * x

    model = Model()
    x = torch.randn(3, 4, requires_grad=True)
    h = x * 2
    with tenscope.trace(model, grads=True):
        model(h).sum().backward()

    q, k = model.q(h).detach().requires_grad_(), model.k(h).detach().requires_grad_()
    (q.relu() * k).sum().backward()
    (of_q,) = torch.autograd.grad(model.q(h), h, q.grad, retain_graph=True)
    (of_k,) = torch.autograd.grad(model.k(h), h, k.grad, retain_graph=True)
    (of_all,) = torch.autograd.grad(model(h).sum(), h)
    for name, want in {
        "q.grad_output.0": q.grad,
        "k.grad_output.0": k.grad,
        "q.grad_input.0": of_q,
        "k.grad_input.0": of_k,
        "grad_input.0": of_all,
    }.items():
        (event,) = events(run, name=name)
        assert torch.allclose(event.torch(), want, rtol=1e-6), name
        assert event.phase == "backward"


def test_a_branch_without_gradient_and_retained_graphs(run):
    class Two(nn.Module):
        def forward(self, x):
            return x * 2, x * 3

    model = Two()
    with tenscope.trace(model, grads=True):
        x = torch.ones(2, requires_grad=True) * 1
        a, _ = model(x)
        a.sum().backward(retain_graph=True)
        a.sum().backward()
    assert [e.torch().tolist() for e in events(run, io="grad_input")] == [[2, 2], [2, 2]]
    assert [e.name for e in events(run, io="grad_output")] == ["grad_output.0", "grad_output.0"]


def test_call_order_durations_and_exceptions(run):
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), Fails()

        def forward(self, x):
            try:
                self.b(self.a(x))
            except ValueError:
                return self.a(x)

    model = Model()
    with tenscope.trace(model):
        model(torch.ones(1, 2))
    order = [(e.kind, e.name, e.call) for e in tenscope.open(run.path) if e.kind in ("enter", "exit")]
    assert order == [
        ("enter", "", 0),
        ("enter", "a", 0), ("exit", "a", 0),
        ("enter", "b", 0), ("exit", "b", 0),
        ("enter", "a", 1), ("exit", "a", 1),
        ("exit", "", 0),
    ]  # fmt: skip
    exits = {e.name: e.meta for e in events(run, kind="exit")}
    assert exits["b"]["raised"] == "ValueError: no" and "raised" not in exits["a"]
    assert 0 < exits["a"]["duration_ns"] < exits[""]["duration_ns"]
    assert events(run, kind="enter")[0].cls == "Model" and events(run, kind="enter")[0].root == "Model#0"


def test_arguments_changed_in_place_are_recorded_after_the_call(run):
    class Shift(nn.Module):
        def forward(self, x, *, also):
            x.add_(1)
            also["y"].mul_(2)
            return x.sum()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift, self.relu = Shift(), nn.ReLU(inplace=True)

        def forward(self, x):
            y = x - 1
            self.shift(y, also={"y": x, "z": x.clone()})
            return self.relu(y)

    with tenscope.trace(Model()) as traced:
        traced.model(torch.tensor([1.0, 2.0]))
    after = {e.name: (e.io, e.torch().tolist()) for e in events(run) if e.name.endswith(".after")}
    assert after == {
        "shift.input.0.after": ("output", [1.0, 2.0]),
        "shift.input.also.y.after": ("output", [2.0, 4.0]),
        "input.0.after": ("output", [2.0, 4.0]),
    }, "what was not changed, or was returned, is not told again"


def test_stack_recovers_from_an_interrupt(run):
    class Interrupted(nn.Module):
        stop = True

        def forward(self, x):
            if self.stop:
                raise KeyboardInterrupt
            return x

    model = nn.Sequential(nn.Identity(), Interrupted())
    with tenscope.trace(model):
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(1))
        Interrupted.stop = False
        model(torch.ones(2))
    outputs = [(e.name, e.shape) for e in events(run, io="output")]
    assert outputs == [("0.output", (1,)), ("0.output", (2,)), ("1.output", (2,)), ("output", (2,))]


def test_filters(run):
    model = GPT()
    with tenscope.trace(model, include=["blocks.*.attn", "head"], exclude="blocks.1.*", inputs=False):
        model(tokens(1, 3))
    assert [e.name for e in events(run)] == ["blocks.0.attn.output", "head.output"]


def test_classes_statistics_every_and_mode(run):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with tenscope.trace(model, classes=(nn.Linear,), values="stats", every=2, mode="eval"):
        for i in range(3):
            model.eval()
            model(torch.full((1, 2), float(i)))
            model.train()
            model(torch.full((1, 2), 9.0))
    seen = events(run, io="input")
    assert [e.stats.max for e in seen] == [0.0, 2.0] and {e.scope for e in seen} == {"0"}
    assert not any(e.stored for e in seen)


def test_shared_modules_say_both_names(run):
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    with tenscope.trace(model):
        model(torch.ones(1, 2))
    enters = events(run, kind="enter", scope="0")
    assert [e.call for e in enters] == [0, 1] and enters[0].meta["aliases"] == ["2"]


def test_not_called_is_said(run):
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["a"](x)

    with tenscope.trace(Model()) as traced:
        traced.model(torch.ones(1, 2))
    assert traced.not_called == ["parts.b"]
    (note,) = events(run, kind="note", name="not_seen")
    assert note.meta["modules"] == ["parts.b"]


def test_counts_and_labels_go_on_from_trace_to_trace(run):
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    for _ in range(2):
        with tenscope.trace(first):
            first(torch.ones(1, 2))
    with tenscope.trace(second):
        second(torch.ones(1, 2))
    assert [(e.root, e.call) for e in events(run, kind="enter")] == [("Linear#0", 0), ("Linear#0", 1), ("Linear#1", 0)]


def test_steps_follow_the_program_or_the_optimizer(run):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def once():
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with tenscope.trace(model):
        once()
        once()
        tenscope.step(7)
        once()
        tenscope.step(8)
        once()
    assert [e.step for e in events(run, kind="enter")] == [0, 1, 7, 8]


def test_autocast_functional_call_and_inference_mode(run):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    observer = Observer(model)
    with tenscope.trace(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(torch.randn(2, 4))
        torch.func.functional_call(model, {"0.bias": torch.full((4,), 100.0)}, (torch.randn(2, 4),))
        with torch.inference_mode():
            model(torch.randn(2, 4))
    assert_same(inputs_outputs(run), observer.flat())
    assert events(run, name="0.output")[0].dtype == "bfloat16"
    assert events(run, name="0.output")[1].torch().min() > 50


def test_gradients_per_sample_by_function_transforms(run):
    model = nn.Linear(3, 1)
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, x):
        return torch.func.functional_call(model, params, (x,)).square().sum()

    x = torch.randn(4, 3)
    want = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x)
    with tenscope.trace(model):
        got = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x)
    assert all(torch.equal(got[name], want[name]) for name in want)
    values = {e.name: e for e in events(run)}
    assert torch.equal(values["input.0.batched"].torch(), x) and values["input.0.axis"].value == 0
    (name,) = [name for name in values if name.startswith("output.") and values[name].is_tensor]
    assert torch.allclose(values[name].torch().squeeze(), model(x).detach().squeeze())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_recomputation_is_no_second_call(run, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model, x = Model(), torch.randn(2, 3, requires_grad=True)
    want = torch.autograd.grad(model.inner(x).sum(), list(model.parameters()))
    with tenscope.trace(model, grads=True, param_grads=True):
        model(x).sum().backward()
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), want, strict=True))
    assert [e.name for e in events(run, kind="enter")] == ["", "inner", "inner.0", "inner.1"]
    assert {e.scope for e in events(run, kind="note", name="recomputed")} == {"inner", "inner.0", "inner.1"}
    assert len(events(run, io="grad")) == 2


def test_compiled_region_is_said_not_to_be_seen(run):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(x).relu()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.head = nn.Linear(3, 1)

        def forward(self, x):
            return self.head(self.inner(x))

    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 3)
    want = model(x)
    model.inner.compile(backend="eager", fullgraph=True)
    with tenscope.trace(model):
        got = model(x)
    assert torch.equal(got, want)
    assert torch.equal(events(run, name="head.output")[0].torch(), want)
    seen = {e.scope for e in events(run, kind="enter")}
    if "inner.fc" not in seen:
        notes = events(run, kind="note", name="not_seen")
        assert any("compile" in n.meta["reason"] for n in notes) or any(
            "inner.fc" in n.meta.get("modules", ()) for n in notes
        )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_torch_compile_returned_is_seen_from_outside(run, backend):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 1)), torch.randn(2, 3)
    want = model(x)
    model[0] = torch.compile(model[0], backend=backend)
    with tenscope.trace(model) as traced:
        assert torch.equal(model(x), want)
    assert [e.name for e in events(run, kind="enter")] == ["", "0", "1"]
    assert torch.equal(events(run, name="0.output")[0].torch(), model[0](x))
    assert traced.not_called == ["0.0", "0.1"]
    compiled, never = events(run, kind="note", name="not_seen")
    assert compiled.scope == "0" and "torch.compile" in compiled.meta["reason"]
    assert never.meta["modules"] == ["0.0", "0.1"]


def test_wrappers_are_left_out_of_names(run):
    inner = nn.Sequential(nn.Linear(2, 2), torch.compile(nn.Linear(2, 2), backend="eager"))
    model = nn.DataParallel(inner)
    with tenscope.trace(model):
        model(torch.ones(1, 2))
    assert {e.scope for e in events(run)} <= {"", "0", "1"}
    assert events(run, name="0.output") and events(run, name="output")


def test_model_is_left_as_it_was(run):
    model = nn.Sequential(nn.Linear(2, 2))
    state = {key: value for key, value in vars(model[0]).items() if "hook" in key}
    with tenscope.trace(model, grads=True) as traced:
        twin = copy.deepcopy(model)
        twin(torch.ones(1, 2))
        model(torch.ones(1, 2))
    assert {key: value for key, value in vars(model[0]).items() if "hook" in key} == state
    assert len(events(run, kind="enter")) == 2, "a copy is another model"
    assert not torch.nn.modules.module._global_forward_hooks and not torch.nn.modules.module._global_forward_pre_hooks
    kept = traced.model
    del traced, kept, twin
    gc.collect()


def test_decorator_and_threads(run):
    model = nn.Linear(2, 2)

    @tenscope.trace(model)
    def work():
        threads = [threading.Thread(target=lambda: model(torch.ones(1, 2))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 5

    assert work() == 5
    assert sorted(e.call for e in events(run, kind="enter")) == [0, 1, 2, 3]


def test_bad_arguments():
    with pytest.raises(ValueError, match="mode"):
        tenscope.trace(nn.Linear(1, 1), mode="training")
    with pytest.raises(ValueError, match="values"):
        tenscope.trace(nn.Linear(1, 1), values="some")
    with pytest.raises(ValueError, match="every"):
        tenscope.trace(nn.Linear(1, 1), every=0)


def test_modules_made_by_the_way_and_registered_later(run):
    class Model(nn.Module):
        def forward(self, x):
            if hasattr(self, "late"):
                x = self.late(x)
            return nn.Softmax(dim=-1)(x)

    model = Model()
    with tenscope.trace(model) as traced:
        for _ in range(5):
            model(torch.ones(2))
        model.late = nn.Linear(2, 2)
        model(torch.ones(2))
        assert len(traced._probe.registry.roots[0].infos) <= 4, "what is gone is forgotten"
    enters = [(e.name, e.call) for e in events(run, kind="enter") if e.name]
    assert enters == [("<Softmax>", i) for i in range(5)] + [("late", 0), ("<Softmax>", 5)]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: tenscope.trace(5), "trace takes a torch.nn.Module, not int"),
        (lambda model: tenscope.gather(None, "forward"), "gather takes a torch.nn.Module, not NoneType"),
        (lambda model: tenscope.check_sync([model]), "check_sync takes a torch.nn.Module, not list"),
        (lambda model: tenscope.trace(model, include=5), "a pattern of paths is text, or a list of texts, not 5"),
        (lambda model: tenscope.trace(model, exclude=[None]), "a pattern of paths is text"),
        (lambda model: tenscope.trace(model, classes=["Linear"]), "classes are types of modules"),
        (lambda model: tenscope.Run("runs", name=5), "a run's name is text, not int"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(call, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=says):
        call(nn.Linear(2, 2))
    assert not (tmp_path / "runs").exists()
