"""Two runs that are laid out differently: over other ranks, in other micro-batches. NumPy cuts the tensors."""

import json
import math

import hand_written_run
import numpy as np
import pytest
import tenscope
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BATCH, TOKENS, WIDTH = 8, 4, 12


def network(seed=0, steps=2):
    """What a network of two layers has in each step, whole: module, name, role, tensor."""
    random = np.random.default_rng(seed)
    weights = {name: random.normal(size=(WIDTH, WIDTH)).astype(np.float32) for name in ("up", "down")}
    events = [[(name, f"{name}.weight", "param", weight) for name, weight in weights.items()]]
    for _ in range(steps):
        x = random.normal(size=(BATCH, TOKENS, WIDTH)).astype(np.float32)
        y = np.tanh(x @ weights["up"])
        z = (y @ weights["down"]).astype(np.float32)
        events.append(
            [
                ("", "input.0", "input", x),
                ("up", "up.input.0", "input", x),
                ("up", "up.output", "output", y),
                ("down", "down.input.0", "input", y),
                ("down", "down.output", "output", z),
                ("", "output", "output", z),
            ]
        )
    return events


def record_pass(run, tensors, call, step, values="full"):
    """One call of the network, with what this rank has of it in this pass."""

    def of(module, what, value=None, **more):
        name = {"name": what} if value is None else {"name": what, "value": value}
        cls = {"": "Net", "up": "Up", "down": "Down"}[module]
        run.record(**name, scope=module, root="Net#0", cls=cls, call=call, step=step, phase="forward", **more)

    def value(module, what):
        for owner, name, io, tensor in tensors:
            if owner == module and name == what:
                of(module, what, tensor, io=io, values=values)

    of("", "", kind="enter")
    value("", "input.0")
    for module in ("up", "down"):
        of(module, module, kind="enter")
        value(module, f"{module}.input.0")
        value(module, f"{module}.output")
        of(module, module, kind="exit")
    value("", "output")
    of("", "", kind="exit")


def record_run(folder, name, ranks, passes, cut, events, values="full"):
    """`cut(name, tensor, rank, pass)`: the part that a rank has in a pass; None: nothing."""
    for rank in range(ranks):
        with tenscope.Run(folder, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:
            for module, what, _, tensor in events[0]:
                part = cut(what, tensor, rank, 0)
                about = {"io": "param", "phase": "init", "root": "Net#0", "step": 0}
                run.record(what, part, scope=module, cls=module.title(), values=values, **about)
            for step, tensors in enumerate(events[1:]):
                run.step(step)
                for nth in range(passes):
                    mine = [(owner, what, io, cut(what, tensor, rank, nth)) for owner, what, io, tensor in tensors]
                    record_pass(run, [one for one in mine if one[3] is not None], step * passes + nth, step, values)
    return folder / name


def whole(_name, tensor, _rank, _nth):
    return tensor


def diff(a, b, check):
    return hand_written_run.tenscope_json("diff", a, b, check=check)


# ---- layouts: what a rank has of each tensor. A layout is a list of steps, the outermost first, that each take some
# ranks: ("same",), ("join", axis, pieces), ("zigzag", axis), ("sum",).


def pieces_of(tensor, way, size):
    kind = way[0]
    if kind == "same":
        return [tensor] * size
    if kind == "sum":
        parts = [np.full_like(tensor, 0.5 * (i + 1)) for i in range(size - 1)]
        return [*parts, tensor - sum(parts)] if parts else [tensor]
    axis = way[1]
    if kind == "zigzag":
        chunks = np.split(tensor, 2 * size, axis)
        return [np.concatenate([chunks[i], chunks[2 * size - 1 - i]], axis) for i in range(size)]
    groups = [np.array_split(group, size, axis) for group in np.split(tensor, way[2], axis)]
    return [np.concatenate([group[i] for group in groups], axis) for i in range(size)]


def part_of(tensor, layout, mesh, rank):
    for way, size, rest in zip(layout, mesh, [math.prod(mesh[i + 1 :]) for i in range(len(mesh))], strict=True):
        tensor = pieces_of(tensor, way, size)[rank // rest % size]
    return np.ascontiguousarray(tensor)


PARAMETERS = st.sampled_from([("same",), ("join", 0, 1), ("join", 1, 1), ("join", 0, 3)])
VALUES = st.sampled_from([("same",), ("join", 0, 1), ("join", 1, 1), ("join", 2, 1), ("join", 2, 3), ("zigzag", 1)])
MESHES = st.sampled_from([(2,), (4,), (2, 2)])
NAMES = ("up.weight", "down.weight", "input.0", "up.input.0", "up.output", "down.input.0", "down.output", "output")


@st.composite
def layouts(draw):
    mesh = draw(MESHES)
    ways = {name: [draw(PARAMETERS if "weight" in name else VALUES) for _ in mesh] for name in NAMES}
    for name, chosen in ways.items():
        tensor = {what: t for step in network() for _, what, _, t in step}[name]
        cut = [way for way in chosen if way[0] != "same"]
        special = [way for way in cut if way[0] == "zigzag" or way[2] > 1]
        if len(set(cut)) < len(cut) or len(special) > 1:  # the same way twice is one of more parts
            ways[name] = [("same",)] * (len(mesh) - 1) + [chosen[-1]]
        try:
            parts = [part_of(tensor, ways[name], mesh, rank) for rank in range(math.prod(mesh))]
        except ValueError:  # cannot be cut so
            parts = []
        if not parts or any(part.size == 0 for part in parts):
            ways[name] = [("same",)] * len(mesh)
    return mesh, ways


HARMLESS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@HARMLESS
@given(layouts(), st.booleans())
def test_any_layout_is_the_same_run(tmp_path_factory, chosen, is_reversed):
    folder = tmp_path_factory.mktemp("layouts")
    mesh, ways = chosen
    events = network()
    one = record_run(folder, "one", 1, 1, whole, events)
    many = record_run(folder, "many", math.prod(mesh), 1, lambda n, t, r, _: part_of(t, ways[n], mesh, r), events)
    found = diff(*([many, one] if is_reversed else [one, many]), check=0)
    assert found["verdict"] in ("equal", "noise"), (mesh, ways, found["first_divergence"])
    assert found["counts"]["compared"] == found["counts"]["first_run"] == found["counts"]["second_run"]


@HARMLESS
@given(layouts(), st.sampled_from(["up.weight", "down.weight", "output"]), st.integers(0, 3), st.booleans())
def test_a_rank_that_is_off_is_named(tmp_path_factory, chosen, name, rank, is_reversed):
    folder = tmp_path_factory.mktemp("layouts")
    mesh, ways = chosen
    ranks = math.prod(mesh)
    rank %= ranks
    events = network()
    correct = {id(tensor) for _, _, _, tensor in events[1]}  # the first step teaches how the parts lie

    def cut(what, tensor, of, _):
        part = part_of(tensor, ways[what], mesh, of)
        if what == name and of == rank and id(tensor) not in correct:
            part = part + np.random.default_rng(9).normal(size=part.shape).astype(np.float32)
        return part

    one = record_run(folder, "one", 1, 1, whole, events)
    many = record_run(folder, "many", ranks, 1, cut, events)
    found = diff(*([many, one] if is_reversed else [one, many]), check=1)
    first = found["first_divergence"]
    assert first["module"] == name.split(".")[0].replace("output", ""), (mesh, ways, first)
    assert [part["rank"] for part in first["metrics"]["parts"]] == [rank], (mesh, ways, first)


@HARMLESS
@given(layouts(), st.booleans(), st.sampled_from([("stats", "stats"), ("stats", "full"), ("full", "stats")]))
def test_without_bytes_nothing_is_found_where_nothing_is_wrong(tmp_path_factory, chosen, is_reversed, values):
    folder = tmp_path_factory.mktemp("layouts")
    mesh, ways = chosen
    events = network()
    one = record_run(folder, "one", 1, 1, whole, events, values[0])
    cut = lambda n, t, r, _: part_of(t, ways[n], mesh, r)  # noqa: E731
    many = record_run(folder, "many", math.prod(mesh), 1, cut, events, values[1])
    found = diff(*([many, one] if is_reversed else [one, many]), check=None)
    assert found["verdict"] in ("equal", "noise", "unknown") and found["origins"] == [], (mesh, ways, found)
    assert found["counts"]["compared"] == found["counts"]["first_run"]
    joined = [name for name, chosen in ways.items() if any(way[0] != "same" for way in chosen)]
    are_unknown = joined != [] and values[1] == "stats"  # parts with bytes make a whole, whose fingerprint is known
    assert (found["verdict"] == "unknown") == are_unknown, (mesh, ways, found["counts"])


@HARMLESS
@given(layouts(), st.sampled_from(["up.weight", "down.weight", "output"]), st.integers(0, 3), st.booleans())
def test_without_bytes_a_module_that_is_off_is_named(tmp_path_factory, chosen, name, rank, is_reversed):
    folder = tmp_path_factory.mktemp("layouts")
    mesh, ways = chosen
    ranks = math.prod(mesh)
    events = network()
    correct = {id(tensor) for _, _, _, tensor in events[1]}

    def cut(what, tensor, of, _):
        part = part_of(tensor, ways[what], mesh, of)
        if what == name and of == rank % ranks and id(tensor) not in correct:
            part = part + 1 + np.random.default_rng(9).normal(size=part.shape).astype(np.float32)
        return part

    one = record_run(folder, "one", 1, 1, whole, events, values="stats")
    many = record_run(folder, "many", ranks, 1, cut, events, values="stats")
    found = diff(*([many, one] if is_reversed else [one, many]), check=1)
    first = found["first_divergence"]
    assert first["module"] == name.split(".")[0].replace("output", ""), (mesh, ways, first)


@pytest.mark.parametrize("is_missing", [False, True])
def test_without_bytes_sums_are_compared_by_their_sketches(tmp_path, is_missing):
    events = network()

    def cut(name, tensor, rank, _):
        if name == "down.output":
            return pieces_of(tensor, ("sum",), 2)[rank]
        if name == "output" and is_missing:
            return pieces_of(tensor, ("sum",), 2)[rank] + np.float32(rank)
        return tensor

    one = record_run(tmp_path, "one", 1, 1, whole, events, values="stats")
    two = record_run(tmp_path, "two", 2, 1, cut, events, values="stats")
    found = diff(one, two, check=1 if is_missing else 0)
    assert found["verdict"] == ("differs" if is_missing else "noise")
    if is_missing:
        assert found["first_divergence"]["module"] in ("", "down")


def test_without_bytes_declared_parts_are_compared_by_their_sketches(tmp_path):
    random = np.random.default_rng(3)
    q = random.normal(size=(16, 12)).astype(np.float32)
    ids = random.integers(0, 50_000, size=(16, 8))

    def record(name, ranks, noise=0.0, step=0):
        for rank in range(ranks):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:
                for what, tensor in (("ids", ids + step), ("q", q + noise * np.roll(q, 1))):
                    part = np.split(tensor, ranks)[rank]
                    if ranks == 1:
                        run.record(what, tensor, values="stats")
                    else:
                        tenscope.shard(what, part, axis=0, part=rank, parts=ranks, run=run, values="stats")
        return tmp_path / name

    one = record("one", 1)
    found = diff(one, record("two", 2), check=None)
    assert found["verdict"] == "unknown" and found["counts"]["noise"] == 1 and found["origins"] == []  # ids: no bytes
    off = diff(one, record("off", 2, noise=0.03), check=1)
    assert off["verdict"] == "differs" and off["first_divergence"]["name"] == "q"
    assert 0.02 < off["first_divergence"]["metrics"]["rel_l2"] < 0.04
    assert diff(one, record("other", 2, step=1), check=1)["first_divergence"]["name"] == "ids"


@pytest.mark.parametrize(("partial", "value"), [("max", 1.0), ("sum", np.nan)])
@pytest.mark.parametrize("is_reversed", [True, False])
def test_without_bytes_what_parts_do_not_tell_is_unknown(tmp_path, partial, value, is_reversed):
    q = np.random.default_rng(6).normal(size=(16, 12)).astype(np.float32)
    q[3, 4] = value
    for name, ranks in (("one", 1), ("two", 2)):
        for rank in range(ranks):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:
                run.record("loss", 1.5)
                if ranks == 1:
                    run.record("q", q, values="stats")
                else:
                    tenscope.shard("q", q, partial=partial, part=rank, parts=2, run=run, values="stats")
    found = diff(*[tmp_path / name for name in (("two", "one") if is_reversed else ("one", "two"))], check=1)
    assert found["verdict"] == "unknown" and found["origins"] == []
    assert any("could not be put together" in note for note in found["notes"])


@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("is_reversed", [True, False])
@pytest.mark.parametrize("partial", [None, "sum"])
def test_recordings_without_modules(tmp_path, is_declared, is_reversed, partial):
    random = np.random.default_rng(4)
    tensors = [random.normal(size=(16, 12)).astype(np.float32) for _ in range(3)]

    def record(name, ranks, off=None):
        for rank in range(ranks):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:
                for step, tensor in enumerate(tensors):
                    run.step(step)
                    part = pieces_of(tensor, ("sum",) if partial else ("join", 0, 1), ranks)[rank]
                    if off == (step, rank):
                        part = part + np.float32(0.1)
                    if is_declared and ranks > 1:
                        how = {"partial": "sum"} if partial else {"axis": 0}
                        tenscope.shard("q", part, part=rank, parts=ranks, run=run, **how)
                    else:
                        run.record("q", part)
        return tmp_path / name

    def compare(other, check):
        one = tmp_path / "one"
        return diff(*([other, one] if is_reversed else [one, other]), check=check)

    record("one", 1)
    assert compare(record("two", 2), 0)["verdict"] in ("equal", "noise")
    first = compare(record("off", 2, off=(1, 1)), 1)["first_divergence"]
    assert (first["name"], first["step"]) == ("q", 1)
    if not partial:
        assert [part["rank"] for part in first["metrics"]["parts"]] == [1]


def test_micro_batches(tmp_path):
    events = network()

    def cut(name, tensor, _rank, nth):
        return tensor if "weight" in name else np.split(tensor, 4)[nth]

    one = record_run(tmp_path, "one", 1, 1, whole, events)
    four = record_run(tmp_path, "four", 1, 4, cut, events)
    found = diff(one, four, check=0)
    assert found["verdict"] == "equal"
    assert {"tensor": "up.output", "a": "", "b": "4 joined along axis 0", "count": 2} in found["layouts"]

    def swapped(name, tensor, rank, nth):
        return cut(name, tensor, rank, {1: 2, 2: 1}.get(nth, nth) if name == "output" else nth)

    wrong = record_run(tmp_path, "wrong", 1, 4, swapped, events)
    first = diff(one, wrong, check=1)["first_divergence"]
    assert first["module"] == "" and first["name"] == "output"
    assert [(part["pass"], part["like_pass"]) for part in first["metrics"]["parts"]] == [(1, 2), (2, 1)]


@pytest.mark.parametrize("way", ["mean", "sum"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_loss_that_the_model_returns(tmp_path, way, is_reversed):
    """Each rank has that of its part of the batch: a mean, or what adds up."""
    events = network()
    for step in events[1:]:
        step.append(("", "output", "output", np.float32(np.mean(step.pop()[3] ** 2))[...]))
    losses = {id(tensor): np.float32(0.1 * i) for i, (*_, tensor) in enumerate(step[-1] for step in events[1:])}

    def record_ranks(name, ranks, off=0):
        def cut(name, tensor, rank, _):
            if name == "output":
                spread = losses[id(tensor)] * (rank - (ranks - 1) / 2)  # adds up to nothing
                return np.asarray(tensor / (ranks if way == "sum" else 1) + spread + off * rank, np.float32)
            return tensor if "weight" in name else np.split(tensor, ranks)[rank]

        return record_run(tmp_path, name, ranks, 1, cut, events)

    one, two, wrong = record_ranks("one", 1), record_ranks("two", 2), record_ranks("wrong", 2, off=0.01)
    assert diff(*((two, one) if is_reversed else (one, two)), check=0)["verdict"] in ("equal", "noise")
    assert diff(*((wrong, one) if is_reversed else (one, wrong)), check=1)["first_divergence"]["name"] == "output"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_loss_of_parts_that_are_not_even(tmp_path, is_reversed):
    """What the parts weigh is known by the program alone, so that it is not known whether their losses are right."""
    events = network()
    for step in events[1:]:
        step[-1] = ("", "output", "output", np.mean(step[-1][3] ** 2, dtype=np.float32)[...])
    outputs = {id(step[-1][3]): step[-2][3] for step in events[1:]}

    def cut(name, tensor, _rank, nth):
        if name == "output":
            return np.mean(np.array_split(outputs[id(tensor)], 3)[nth] ** 2, dtype=np.float32)[...]
        return tensor if "weight" in name else np.array_split(tensor, 3)[nth]

    one, three = record_run(tmp_path, "one", 1, 1, whole, events), record_run(tmp_path, "three", 1, 3, cut, events)
    found = diff(*((three, one) if is_reversed else (one, three)), check=0)
    assert found["counts"]["compared"] == found["counts"]["first_run"] - 2
    assert any("could not be put together" in note and "output" in note for note in found["notes"])


def test_the_part_of_another_rank(tmp_path):
    events = network()

    def cut(name, tensor, rank, _):
        if name == "up.weight":
            return np.split(tensor, 4, 1)[rank]
        return tensor

    one = record_run(tmp_path, "one", 1, 1, whole, events)
    assert diff(one, record_run(tmp_path, "good", 4, 1, cut, events), check=0)["verdict"] == "equal"
    swapped = record_run(tmp_path, "swapped", 4, 1, lambda n, t, r, p: cut(n, t, {2: 3, 3: 2}.get(r, r), p), events)
    first = diff(one, swapped, check=1)["first_divergence"]
    assert (first["module"], first["phase"]) == ("up", "init")
    assert [(part["rank"], part["like"]) for part in first["metrics"]["parts"]] == [(2, 3), (3, 2)]
    text = hand_written_run.tenscope("diff", one, swapped, check=1).stdout
    assert "rank 2 has the part of rank 3" in text and "1 process against 4 ranks" in text, text


@pytest.mark.parametrize("is_made", [True, False])
def test_a_sum_over_ranks(tmp_path, is_made):
    """Summands are a layout where what is made of them is whole, and a mistake where it is not."""
    events = network()

    def cut(name, tensor, rank, _):
        is_summand = name == "down.output" or (name == "output" and not is_made)
        if is_summand:
            return tensor / 4 if name == "down.output" else tensor / 4 + tensor
        return tensor

    one = record_run(tmp_path, "one", 1, 1, whole, events)
    many = record_run(tmp_path, "many", 4, 1, cut, events)
    if is_made:
        assert diff(one, many, check=0)["verdict"] in ("equal", "noise")
        return
    first = diff(one, many, check=1)["first_divergence"]
    assert first["name"] == "down.output" and first["metrics"]["sum_is_missing"]
    text = hand_written_run.tenscope("diff", one, many, check=1).stdout
    assert "the sum over ranks is missing" in text


@pytest.mark.parametrize("is_reversed", [False, True])
def test_as_many_parts_that_are_not_as_many_summands(tmp_path, is_reversed):
    """Four passes have a summand each; of four ranks two have the same one: a position embedding's gradient is so."""
    events = network()

    def summand(tensor, count, part):
        shares = np.random.default_rng(count).dirichlet(np.ones(count), tensor.shape).astype(np.float32)
        return tensor * shares[..., part]

    def cut(count, off=1.0):
        def one(name, tensor, rank, nth):
            if "weight" in name:
                return tensor
            part = nth if count == 4 else rank // 2
            if name == "up.output":
                return summand(tensor, count, part) * np.float32(off if part else 1)
            is_after = name in ("down.input.0", "down.output", "output")
            return np.split(tensor, count)[part] * np.float32(off if is_after else 1)

        return one

    passes = record_run(tmp_path, "passes", 1, 4, cut(4), events)
    ranks = record_run(tmp_path, "ranks", 4, 1, cut(2), events)
    found = diff(*((ranks, passes) if is_reversed else (passes, ranks)), check=0)
    assert (found["verdict"], found["counts"]["noise"], found["counts"]["idle"]) == ("noise", 2, 0)
    off = record_run(tmp_path, "off", 4, 1, cut(2, off=1.1), events)  # and what follows from it
    assert diff(*((off, passes) if is_reversed else (passes, off)), check=1)["first_divergence"]["name"] == "up.output"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_data_that_is_dealt_out_in_another_way_is_not_blamed(tmp_path, is_reversed):
    """As many ranks with other pieces of the sequence: nothing of a rank agrees, and the data is the same."""
    events = network()

    def cut(order, off=1.0):
        def one(name, tensor, rank, _):
            if "weight" in name:
                return tensor
            chunks = np.split(tensor, 4, axis=1)
            part = np.concatenate([chunks[at] for at in order[rank]], axis=1)
            return part * np.float32(off if name not in ("input.0", "up.input.0") else 1)

        return one

    straight, zigzag = ((0, 1), (2, 3)), ((0, 3), (1, 2))
    good = record_run(tmp_path, "good", 2, 1, cut(zigzag), events)
    assert diff(good, record_run(tmp_path, "same", 2, 1, cut(straight), events), check=0)["verdict"] == "equal"
    off = record_run(tmp_path, "off", 2, 1, cut(straight, off=1.1), events)
    first = diff(*((off, good) if is_reversed else (good, off)), check=1)["first_divergence"]
    assert first["name"] == "up.output"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_what_a_later_stage_received_is_not_blamed(tmp_path, is_reversed):
    """By position the input of the second stage comes first: it is what the first stage has made."""
    events = network()

    def record(name, off):
        for rank in (0, 1):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=2, join=rank > 0, metadata=False) as run:
                module = ("up", "down")[rank]
                about = {"root": "Net#0", "cls": "Net", "step": 0, "call": 0, "phase": "forward"}
                told = json.dumps({"stage": rank, "stages": 2})
                run.record("pipeline_stage", kind="note", scope="", root="Net#0", meta=told)
                tensors = {what: tensor * np.float32(off) for _, what, _, tensor in events[1]}
                tensors["up.input.0"] = events[1][1][3]
                run.record("", kind="enter", scope="", **about)
                run.record("input.0", tensors[f"{module}.input.0"], scope="", io="input", **about)
                for inner in ("norm", module):
                    run.record(inner, kind="enter", scope=inner, **about)
                    given = tensors[f"{module}.input.0"]
                    made = given if inner == "norm" else tensors[f"{module}.output"]
                    run.record(f"{inner}.input.0", given, scope=inner, io="input", **about)
                    run.record(f"{inner}.output", made, scope=inner, io="output", **about)
                    run.record(inner, kind="exit", scope=inner, **about)
                run.record("", kind="exit", scope="", **about)
        return tmp_path / name

    a, b = record("good", 1), record("bad", 1.1)
    first = diff(*((b, a) if is_reversed else (a, b)), check=1)["first_divergence"]
    assert (first["name"], first["rank"]) == ("up.output", 0)


def test_stages_that_have_a_part_of_the_model(tmp_path):
    events = network()

    one = record_run(tmp_path, "one", 1, 1, whole, events)
    for rank in (0, 1):
        with tenscope.Run(tmp_path, name="two", rank=rank, world_size=2, join=rank > 0, metadata=False) as run:
            module = ("up", "down")[rank]
            about = {"scope": module, "root": "Net#0", "cls": module.title()}
            for owner, what, _, tensor in events[0]:
                if owner == module:
                    run.record(what, tensor, io="param", phase="init", step=0, **about)
            for step, tensors in enumerate(events[1:]):
                run.step(step)
                of_model = {"scope": "", "root": "Net#0", "cls": "Net", "call": step, "phase": "forward"}
                run.record("", kind="enter", **of_model)
                run.record(module, kind="enter", call=step, phase="forward", **about)
                for owner, what, io, tensor in tensors:
                    if owner == module:
                        run.record(what, tensor, io=io, call=step, phase="forward", **about)
                run.record(module, kind="exit", call=step, phase="forward", **about)
                run.record("", kind="exit", **of_model)
    found = diff(one, tmp_path / "two", check=0)
    assert found["verdict"] == "equal"
    assert found["counts"]["compared"] == found["counts"]["second_run"] == 2 + 2 * 4
    assert json.dumps(found).count("put together of their parts") == 1


@pytest.mark.parametrize("is_reversed", [True, False])
def test_a_stage_may_be_matched_with_a_module_inside_another_one(tmp_path, is_reversed):
    """Stages that are a Sequential of an embedding and a block, against stages that have all of it in one module."""
    random = np.random.default_rng(5)
    new = {key: random.normal(size=(8, 8)).astype(np.float32) for key in ("tok", "pos", "block", "head")}
    values = {key: random.normal(size=(4, 8)).astype(np.float32) for key in ("x", "tok", "pos", "sum", "block", "head")}
    paths = [
        {"embed": "0", "tok": "0.tok", "pos": "0.pos", "block": "1"},
        {"tok": "tok", "pos": "pos", "block": "block"},
    ]

    def record(name, path, root, ranks):
        def call(run, module, inputs, output, inside=()):
            about = {"scope": module, "root": root, "cls": (module or root).strip("#0").split(".")[-1], "call": 0}
            at = f"{module}." if module else ""
            run.record(module, kind="enter", phase="forward", **about)
            run.record(f"{at}input.0", values[inputs], io="input", phase="forward", **about)
            for one in inside:
                call(run, *one)
            run.record(f"{at}output", values[output], io="output", phase="forward", **about)
            run.record(module, kind="exit", phase="forward", **about)

        for rank in range(ranks):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:
                is_last = rank >= ranks // 2
                for key in ("head",) if is_last else ("tok", "pos", "block"):
                    module = path.get(key, key)
                    about = {"scope": module, "root": root, "cls": key, "io": "param", "phase": "init", "step": 0}
                    run.record(f"{module}.weight", new[key], **about)
                parts = [(path["tok"], "x", "tok"), (path["pos"], "x", "pos")]
                if "embed" in path:
                    parts = [(path["embed"], "x", "sum", parts)]
                if is_last:
                    call(run, "", "block", "head", [("head", "block", "head")])
                else:
                    call(run, "", "x", "block", [*parts, (path["block"], "sum", "block")])
        return tmp_path / name

    runs = [record("two", paths[0], "Sequential#0", 2), record("four", paths[1], "Stage#0", 4)]
    found = diff(*(reversed(runs) if is_reversed else runs), check=0)
    assert found["verdict"] == "equal" and found["origins"] == []


def test_ranks_that_have_exchanged_their_data(tmp_path):
    """The sums over ranks are the same, and yet each rank has what the other should have."""
    events = network()

    def cut(name, tensor, rank, _):
        return tensor if "weight" in name else np.split(tensor, 2)[rank]

    good = record_run(tmp_path, "good", 2, 1, cut, events)
    exchanged = record_run(tmp_path, "exchanged", 2, 1, lambda n, t, r, p: cut(n, t, 1 - r, p), events)
    first = diff(good, exchanged, check=1)["first_divergence"]
    assert (first["module"], first["io"]) == ("", "input")
    one = record_run(tmp_path, "one", 1, 1, whole, events)
    parts = diff(one, exchanged, check=1)["first_divergence"]["metrics"]["parts"]
    assert [(part["rank"], part["like"]) for part in parts] == [(0, 1), (1, 0)]


def test_ranks_are_not_compared_one_by_one(tmp_path):
    events = network()
    one = record_run(tmp_path, "one", 1, 1, whole, events)
    two = record_run(tmp_path, "two", 2, 1, whole, events)
    with pytest.raises(tenscope.Error, match="laid out differently"):
        tenscope.diff(one, two, ranks=[0])
    assert tenscope.diff(one, two).verdict == "equal"


def test_parts_that_are_not_there_are_no_agreement_and_no_difference(tmp_path):
    events = network()

    def cut(name, tensor, rank, _):
        return tensor if "weight" in name else np.split(tensor, 2)[rank]

    one = record_run(tmp_path, "one", 1, 1, whole, events)
    two = record_run(tmp_path, "two", 2, 1, cut, events)
    for segment in two.glob("rank-*/*.safetensors"):
        segment.unlink()
    assert diff(one, two, check=1)["verdict"] == "unknown"
    lost = record_run(tmp_path, "lost", 2, 1, cut, events)
    for file in (lost / "rank-1").iterdir():
        file.unlink()
    (lost / "rank-1").rmdir()
    found = diff(one, lost, check=1)
    assert found["verdict"] == "unknown" and found["origins"] == []
