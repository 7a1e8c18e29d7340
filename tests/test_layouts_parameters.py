"""How parameters and their gradients are laid out, in two runs of one training. NumPy cuts the tensors."""

import hand_written_run
import numpy as np
import pytest
import tenscope

WIDTH, STEPS = 12, 2
X = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)


def training(seed=0):
    """Two layers, each with a weight and a bias that begins as zeros: parameters at first, then gradients and
    parameters of each step."""
    random = np.random.default_rng(seed)

    def made(zero=False):
        return {
            f"{layer}.{name}": np.zeros(shape, np.float32)
            if zero and name == "bias"
            else random.normal(size=shape).astype(np.float32)
            for layer in ("up", "down")
            for name, shape in (("weight", (WIDTH, 5)), ("bias", (WIDTH,)))
        }

    return made(zero=True), [(made(), made()) for _ in range(STEPS)]


def record(folder, name, ranks, cut, passes=1, trained=None, layers=("up", "down"), off=lambda _name, value: value):
    """`cut(name, tensor, rank)`: what a rank has of it; None: nothing. Gradients add up over the passes of a step."""
    initial, steps = trained or training()
    for rank in range(ranks):
        with tenscope.Run(folder, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:

            def of_parameters(tensors, suffix="", rank=rank, run=run, **about):
                for what, tensor in tensors.items():
                    part = cut(what, tensor, rank)
                    layer = what.partition(".")[0]
                    if part is not None and layer in layers:
                        run.record(what + suffix, part, scope=layer, root="Net#0", cls=layer.title(), **about)

            of_parameters(initial, io="param", phase="init", step=0)
            for step, (gradients, parameters) in enumerate(steps):
                run.step(step)
                for nth in range(passes):
                    call = {"root": "Net#0", "call": step * passes + nth, "phase": "forward"}
                    part = np.split(X, passes)[nth]
                    run.record("", kind="enter", scope="", cls="Net", **call)
                    for layer in layers:
                        if cut(f"{layer}.weight", initial[f"{layer}.weight"], rank) is None:
                            continue
                        run.record(layer, kind="enter", scope=layer, cls=layer.title(), **call)
                        run.record(f"{layer}.output", part, scope=layer, cls=layer.title(), io="output", **call)
                        run.record(layer, kind="exit", scope=layer, cls=layer.title(), **call)
                    run.record("", kind="exit", scope="", cls="Net", **call)
                    so_far = {what: off(what, one) * ((nth + 1) / passes) for what, one in gradients.items()}
                    of_parameters(
                        {what: one.astype(np.float32) for what, one in so_far.items()},
                        ".grad",
                        io="grad",
                        phase="backward",
                        step=step,
                        call=step * passes + nth,
                    )
                of_parameters(parameters, io="param", phase="optimizer", step=step)
    return folder / name


def whole(_name, tensor, _rank):
    return tensor


def diff(a, b, check):
    return hand_written_run.tenscope_json("diff", a, b, check=check)


def fused(name, tensor, rank):
    """A third of each third, q, k and v, as a rank of two has it."""
    return np.concatenate([np.split(third, 2)[rank] for third in np.split(tensor, 3)])


@pytest.mark.parametrize("is_reversed", [False, True])
def test_what_begins_as_zeros_does_not_tell_how_it_lies(tmp_path, is_reversed):
    one, two = record(tmp_path, "one", 1, whole), record(tmp_path, "two", 2, fused)
    found = diff(*((two, one) if is_reversed else (one, two)), check=0)
    assert found["verdict"] == "equal" and found["counts"]["compared"] == found["counts"]["first_run"]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("sizes", [(17, 43), (60, 0), (0, 60), (30, 30)])
def test_parameters_in_pieces_of_one_row(tmp_path, sizes, is_reversed):
    """As FSDP has them that came before FSDP2: the weight in two pieces, or whole on one of two ranks."""

    def pieces(name, tensor, rank):
        row = tensor.ravel()
        first = sizes[0] if "weight" in name else sizes[0] * WIDTH // sum(sizes)
        return row[:first] if rank == 0 else row[first:]

    one, two = record(tmp_path, "one", 1, whole), record(tmp_path, "two", 2, pieces)
    found = diff(*((two, one) if is_reversed else (one, two)), check=0)
    assert found["verdict"] == "equal" and found["counts"]["compared"] == found["counts"]["first_run"]

    def swapped(name, tensor, rank):
        return pieces(name, tensor[::-1] if name == "down.weight" else tensor, rank)

    wrong = record(tmp_path, "wrong", 2, swapped)
    first = diff(*((wrong, one) if is_reversed else (one, wrong)), check=1)["first_divergence"]
    assert (first["module"], first["phase"]) == ("down", "init")


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_gradient_lies_as_its_parameter_does(tmp_path, is_reversed):
    """A gradient that is wrong in all steps agrees in no layout. Both runs have each layer on one of their ranks."""

    def stage(layers):
        return lambda name, tensor, rank: tensor if name.startswith(layers[rank]) else None

    two = record(tmp_path, "two", 2, stage(("up", "down")), passes=4)
    four = record(
        tmp_path, "four", 2, stage(("down", "up")), passes=4, off=lambda _, one: one * 4, layers=("up", "down")
    )
    first = diff(*((four, two) if is_reversed else (two, four)), check=1)["first_divergence"]
    assert (first["io"], first["phase"]) == ("grad", "backward")
    assert first["metrics"]["relation"] == ("b = 0.25 a" if is_reversed else "b = 4 a")


def call(run, path, given, made, inside=lambda: None, **about):
    """One call of a module."""
    about = {"scope": path, "root": "Net#0", "cls": "Net" if not path else path.rpartition(".")[2].title()} | about
    at = f"{path}." if path else ""
    run.record(path, kind="enter", **about)
    run.record(f"{at}input.0", given, io="input", **about)
    inside()
    run.record(f"{at}output", made, io="output", **about)
    run.record(path, kind="exit", **about)


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_fused_weight_that_is_cut_otherwise_than_in_another_layer(tmp_path, off, is_reversed):
    """q, k and v are cut behind each other in one of the layers, of which the results are others then."""
    random = np.random.default_rng(3)
    weights = [random.normal(size=(WIDTH, 6)).astype(np.float32) for _ in range(2)]
    given, *made = (random.normal(size=(5, 6)).astype(np.float32) for _ in range(3))

    def record_layers(name, ranks, off=None):
        for rank in range(ranks):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:

                def part(layer, tensor, rank=rank):
                    if ranks == 1:
                        return tensor
                    return np.split(tensor, 2)[rank] if layer == off else fused("", tensor, rank)

                for layer, weight in enumerate(weights):
                    about = {"scope": f"layers.{layer}.qkv", "root": "Net#0", "cls": "Qkv", "io": "param"}
                    run.record(f"layers.{layer}.qkv.weight", part(layer, weight), phase="init", step=0, **about)
                results = [one * (1 if off is None or layer < off else 1.5) for layer, one in enumerate(made)]
                inputs = [given, results[0]]
                about = {"call": 0, "step": 0, "phase": "forward"}

                def layers(part=part, run=run, inputs=inputs, results=results, about=about):
                    for layer in (0, 1):
                        x = inputs[layer]
                        y = part(layer, np.ascontiguousarray((x @ weights[layer].T).T))
                        path = f"layers.{layer}"

                        def qkv(run=run, path=path, x=x, y=y, about=about):
                            call(run, f"{path}.qkv", x, np.ascontiguousarray(y.T), **about)

                        call(run, path, x, results[layer], qkv, **about)

                call(run, "", given, results[1], layers, **about)
        return tmp_path / name

    one, two = record_layers("one", 1), record_layers("two", 2)
    assert diff(one, two, check=0)["verdict"] == "equal"
    wrong = record_layers("wrong", 2, off)
    first = diff(*((wrong, one) if is_reversed else (one, wrong)), check=1)["first_divergence"]
    assert (first["name"], first["phase"]) == (f"layers.{off}.qkv.weight", "init")


@pytest.mark.parametrize("drift", [0, 0.1])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_data_that_is_dealt_out_to_ranks_that_share_the_work(tmp_path, drift, is_reversed):
    """Ranks 0 and 1 have parts of the weights, and so have 2 and 3: each pair should be given one half of the batch.
    Where they are not, a bias that all have drifts apart with the data."""
    random = np.random.default_rng(4)
    up, down = (random.normal(size=(6, 6)).astype(np.float32) for _ in range(2))

    def record_pairs(name, ranks, half_of):
        for rank in range(ranks):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:

                def of_batch(tensor, rank):
                    return tensor if ranks == 1 else np.split(tensor, 2)[half_of(rank)]

                def of_weight(tensor, axis, rank=rank):
                    return tensor if ranks == 1 else np.ascontiguousarray(np.split(tensor, 2, axis)[rank % 2])

                for path, weight, axis in (("up", up, 1), ("down", down, 0)):
                    about = {"scope": path, "root": "Net#0", "cls": path.title(), "io": "param"}
                    run.record(f"{path}.weight", of_weight(weight, axis), phase="init", step=0, **about)
                for step in range(2):
                    x = np.random.default_rng(step).normal(size=(8, 6)).astype(np.float32)
                    run.step(step)
                    mine = of_batch(x, rank)
                    peers = [rank] if ranks == 1 else [rank // 2 * 2, rank // 2 * 2 + 1]
                    y = np.tanh(mine @ of_weight(up, 1))
                    z = sum(
                        np.tanh(of_batch(x, peer) @ of_weight(up, 1, peer)) @ of_weight(down, 0, peer) for peer in peers
                    )
                    if name == "wrong":
                        z = z + np.float32(drift * step * half_of(rank))
                    about = {"call": step, "step": step, "phase": "forward"}

                    def inside(run=run, mine=mine, y=y, z=z, about=about):
                        call(run, "up", mine, y, **about)
                        call(run, "down", y, z, **about)

                    call(run, "", mine, z, inside, **about)
        return tmp_path / name

    one = record_pairs("one", 1, lambda rank: 0)
    right, wrong = record_pairs("right", 4, lambda rank: rank // 2), record_pairs("wrong", 4, lambda rank: rank % 2)
    assert diff(one, right, check=0)["verdict"] in ("equal", "noise")
    first = diff(*((wrong, one) if is_reversed else (one, wrong)), check=1)["first_divergence"]
    assert (first["module"], first["io"], first["step"]) == ("", "input", 0)
    assert [(part["rank"], part["like"]) for part in first["metrics"]["parts"]] == [(1, 2), (2, 0)]
