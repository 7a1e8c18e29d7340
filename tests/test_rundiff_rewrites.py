"""A model that is written in another way is no difference; a mistake in it is one, and is named where it was made.

REWRITES_EXAMPLES=1000 HYPOTHESIS_PROFILE=random looks for more.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
import tenscope
import torch
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from rewritten_models import (
    CHAINS,
    CONTAINERS,
    HIDDEN,
    LENGTH,
    VOCABULARY,
    WIDTH,
    Mistake,
    Node,
    Program,
    Rewrite,
    Written,
    keyed,
)

many = settings(
    max_examples=int(os.environ.get("REWRITES_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
NAMES = ["inner", "module", "fc1", "fc2", "norm", "q", "layer", "part0", "part1", "block"]
CLASSES = ["Block", "Inner", "Dense", "Linear", "Attention", "Net"]
FORMS = ["none", "expanded", "number", "bool"]
KEYWORDS = True  # arguments may be given by keyword instead of by position


@st.composite
def models(draw):
    counter = itertools.count()

    def name():
        return f"part{next(counter)}"

    def linear(name, given=WIDTH, made=WIDTH):
        return Node("linear", name, sizes=(given, made))

    def part(depth):
        kinds = ["linear", "norm", "act", "dropout", "conv", "mlp", "attention"]
        if depth > 0:
            kinds += ["residual", "residual", "branches", "twice"]
        kind, own = draw(st.sampled_from(kinds)), name()
        if kind == "mlp":
            children = [linear("fc1", WIDTH, HIDDEN), Node("act", "act"), linear("fc2", HIDDEN, WIDTH)]
            if draw(st.booleans()):
                children.append(Node("dropout", "drop"))
        elif kind == "attention":
            children = [linear(name) for name in "qkvo"]
        elif kind == "residual":
            children = [Node("norm", "norm")] * draw(st.integers(0, 1)) + [
                part(depth - 1) for _ in range(draw(st.integers(1, 2)))
            ]
        elif kind == "branches":
            children = [part(depth - 1), part(depth - 1)]
        elif kind == "twice":
            children = [part(depth - 1)]
        else:
            children = []
        return Node(kind, own, children=tuple(children))

    children = [Node("embedding", "tokens", sizes=(VOCABULARY, WIDTH))]
    if draw(st.booleans()):
        children.append(Node("embedding", "positions", sizes=(LENGTH + 1, WIDTH)))
    children += [part(2) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        children.append(Node("norm", "final"))
    tied_to = "tokens" if draw(st.booleans()) else ""
    children.append(Node("linear", "head", sizes=(WIDTH, VOCABULARY), tied_to=tied_to))
    return keyed(Node("model", "", children=tuple(children)))


@st.composite
def programs(draw):
    return Program(
        draw(models()),
        draw(st.integers(1, 3)),
        draw(st.sampled_from(["SGD", "Adam"])),
        draw(st.sampled_from(["causal", "padding", "full"])),
    )


def kinds_of_rewrites(node: Node) -> list[str]:
    kinds = ["wrap", "class"]
    if node.key:
        kinds += ["rename", "inline", "identity"]
    if node.kind not in CONTAINERS:
        kinds += ["own"]
    if node.kind in CONTAINERS:
        kinds += ["define", "tuple"]
        if node.key:
            kinds += ["checkpoint"]
    if node.takes_mask():
        kinds += ["mask"] + ["keyword"] * KEYWORDS
    if node.kind in CHAINS:
        kinds += ["group"]
    kinds += {
        "mlp": ["sequential"],
        "attention": ["fuse", "sdpa", "order"],
        "branches": ["order"],
        "residual": ["order"],
        "twice": ["alias"],
        "model": ["int32", "zeros", "loss"],
    }.get(node.kind, [])
    return kinds


@st.composite
def rewrites(draw, model: Node):
    found, sides = [], st.sampled_from(["before", "after"])
    for _ in range(draw(st.integers(1, 6))):
        node = draw(st.sampled_from(list(model.walk())))
        kind = draw(st.sampled_from(kinds_of_rewrites(node)))
        words = {
            "wrap": (st.sampled_from(CLASSES), st.sampled_from(NAMES)),
            "class": (st.sampled_from(CLASSES),),
            "rename": (st.sampled_from(NAMES),),
            "identity": (st.sampled_from([name for name in NAMES if name != node.name]), sides),
            "group": (st.integers(0, 2), st.integers(1, 4), st.sampled_from(NAMES)),
            "mask": (st.sampled_from(FORMS),),
        }.get(kind, ())
        found.append(Rewrite(kind, node.key, tuple(draw(word) for word in words)))
    return tuple(found)


def mistakes(model: Node):
    found = [Mistake(kind) for kind in ("rate", "zero grad", "reduction")]
    for node in model.walk():
        kinds = {
            "norm": ["eps"],
            "attention": ["scale", "mask"],
            "linear": ["init", "frozen", "left out"] + ["transposed"] * (node.sizes[0] == node.sizes[1]),
            "embedding": ["init"],
            "dropout": ["dropout"],
            "act": ["act"],
            "residual": ["residual"],
            "twice": ["once"],
            "model": ["position"],
        }.get(node.kind, [])
        # A gradient that is cut off in front of a module without parameters may have been so on either side of it.
        if node.kind in CHAINS and node.children[-1].kind in ("linear", "norm", "conv", "mlp", "attention"):
            kinds = [*kinds, "detach"]
        if node.tied_to:
            kinds = []
        found += [Mistake(kind, node.key) for kind in kinds]
    return st.sampled_from(found)


folders = (f"pair{i}" for i in itertools.count())


def record(folder: Path, name: str, written: Written) -> tuple[Path, list[torch.Tensor]]:
    calls = itertools.count()
    with tenscope.Run(folder, name=name, strict=True) as run:

        def on_loss(loss):
            where = {"root": f"{type(written.model).__name__}#0", "call": next(calls)}
            run.record("loss", loss.detach(), io="loss", phase="backward", site="", **where)

        with tenscope.trace(written.model, grads=True, param_grads=True, params=True, run=run):
            results = written.run(on_loss)
    return Path(run.path), results


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """The largest difference of any result as a part of the largest number in it."""
    return max(float((x - y).abs().max() / x.abs().max()) for x, y in zip(a, b, strict=True))


def places_of(mistake: Mistake, here: Written, there: Written) -> list[str]:
    """The paths here of the module that a mistake is in, or was in, up to the innermost that both have."""
    innermost = next(key for key in keys_up(mistake.key) if key in here.paths)
    both = next(key for key in keys_up(mistake.key) if key in here.paths and key in there.paths
                and not is_another(key, mistake, here, there))  # fmt: skip
    around = [path for path in keys_up(here.paths[innermost]) if len(path) >= len(here.paths[both])]
    return [*around, *here.owners(mistake.key)]


def keys_up(key: str) -> list[str]:
    """A dotted path, and those around it."""
    parts = key.split(".") if key else []
    return [".".join(parts[:end]) for end in range(len(parts), -1, -1)]


def is_another(key: str, mistake: Mistake, here: Written, there: Written) -> bool:
    """A module of another class under another name, that does something else: then its caller uses another one."""
    names = {written.paths[key].rpartition(".")[2] for written in (here, there)}
    classes = {type(written.model.get_submodule(written.paths[key])).__name__ for written in (here, there)}
    kinds = ("act", "dropout", "residual", "once")
    return mistake.kind in kinds and key == mistake.key and len(names) == len(classes) == 2


@many
@given(st.data())
def test_a_rewrite_is_no_difference(tmp_path, data):
    program = data.draw(programs())
    rewritten = Written(program, data.draw(rewrites(program.model)))
    folder = tmp_path / next(folders)
    a, results = record(folder, "plain", Written(program))
    b, others = record(folder, "rewritten", rewritten)
    assert distance(results, others) < 1e-3  # the rewrites are none
    for first, second in ((a, b), (b, a)):
        found = tenscope.diff(first, second)
        note(f"{rewritten.model}\n{found}")
        assert found.verdict in ("equal", "noise")


@pytest.mark.parametrize("side", ["before", "after"])
def test_another_module_under_a_name_that_became_free(tmp_path, side):
    parts = [Node("embedding", "tokens", sizes=(VOCABULARY, WIDTH)), Node("linear", "fc"), Node("act", "act")]
    parts += [Node("norm", "norm"), Node("linear", "head", sizes=(WIDTH, VOCABULARY))]
    program = Program(keyed(Node("model", "", children=tuple(parts))), steps=2)
    identity = Rewrite("identity", "norm" if side == "before" else "fc", ("act", side))
    a, _ = record(tmp_path, "plain", Written(program))
    b, _ = record(tmp_path, "rewritten", Written(program, (Rewrite("inline", "act"), identity)))
    assert tenscope.diff(a, b).verdict == tenscope.diff(b, a).verdict == "noise"


def check_place(found, mistake: Mistake, here: Written, there: Written) -> None:
    first = found.first_divergence
    if mistake.kind == "rate":
        assert first.phase == "optimizer"
    elif mistake.kind == "zero grad":
        assert (first.phase, first.io, first.step) == ("backward", "grad", 1)
    elif mistake.kind == "reduction":
        assert first.io == "loss"
    else:
        assert first.module in places_of(mistake, here, there)
        phases = {"detach": ("backward",), "frozen": ("backward",), "left out": ("optimizer",)}
        assert first.phase in phases.get(mistake.kind, ("init", "forward"))


@many
@given(st.data())
def test_a_mistake_in_a_rewritten_model_is_found_where_it_is(tmp_path, data):
    program = data.draw(programs())
    mistake = data.draw(mistakes(program.model))
    changes = data.draw(rewrites(program.model))
    folder = tmp_path / next(folders)
    plain, wrong = Written(program), Written(program, changes, mistake)
    a, results = record(folder, "plain", plain)
    b, others = record(folder, "wrong", wrong)
    assume(distance(results, others) > 1e-3)
    for (first, here), (second, there) in itertools.permutations(((a, plain), (b, wrong))):
        found = tenscope.diff(first, second)
        note(f"{here.model}\n{found}")
        assert found.verdict == "differs"
        check_place(found, mistake, here, there)
