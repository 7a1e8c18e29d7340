"""What `tenscope view` says of recordings: the answer, the timeline, modules, names, events, series, lists, files."""

from __future__ import annotations

import json
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
import tenscope
from hand_written_run import tenscope as tenscope_cli
from test_layouts import network as two_layers
from test_layouts import record_run, whole
from test_rundiff import Module
from viewed_runs import ALONE, EQUAL, FOLLOWS, STARTS, STEPS, network, play, record_runs, relative, rows_of
from viewer_client import viewing


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return record_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def bad(runs):
    """The good run against one with a mistake in blocks.1.mlp."""
    with viewing(runs / "good", runs / "bad") as viewer:
        yield SimpleNamespace(viewer=viewer, a=tenscope.open(runs / "good"), b=tenscope.open(runs / "bad"))


# The answer.


def test_the_answer_is_that_of_diff(runs, bad):
    answer = bad.viewer.answer()
    said = tenscope_cli("diff", runs / "good", runs / "bad", check=1).stdout
    assert answer["headline"] == said.splitlines()[0]
    assert answer["coverage"] in said
    diff = json.loads(tenscope_cli("diff", runs / "good", runs / "bad", "--json", check=1).stdout)
    assert (answer["of"], answer["verdict"]) == ("diff", "differs")
    assert answer["origin_count"] == answer["counts"]["origins"] == len(answer["places"]) == 1
    shared = answer["counts"].keys() & diff["counts"].keys()
    assert {"compared", "bit_equal", "noise", "unknown", "consequences"} <= shared
    assert {key: answer["counts"][key] for key in shared} == {key: diff["counts"][key] for key in shared}
    place = answer["places"][0]
    assert (place["title"], place["module"], place["class"]) == ("first divergence", "blocks.1.mlp", "Linear")
    assert (place["name"], place["step"], place["call"], place["rank"]) == ("blocks.1.mlp.output", 0, 0, 0)
    for side, run in (("a", bad.a), ("b", bad.b)):
        event = bad.viewer.json("event", side=side, event=place[f"event_{side}"])
        assert (event["name"], event["step"]) == ("blocks.1.mlp.output", 0)
        last = bad.viewer.json("event", side=side, event=place["last_agreeing"][f"event_{side}"])
        assert last["name"] == place["last_agreeing"]["name"]
        assert event["tensor"]["fingerprint"] == run.event("blocks.1.mlp.output", 0).fingerprint
    outputs = [run["blocks.1.mlp.output", 0] for run in (bad.a, bad.b)]
    assert place["rel_l2"] == pytest.approx(relative(*outputs))
    for name, text in place["rows"]:
        assert text in said, name
    assert len(place["commands"]) == 2
    for command in place["commands"]:
        words = shlex.split(command)
        assert words[0] == "tenscope"
        assert "blocks.1.mlp.output" in tenscope_cli(*words[1:]).stdout
    assert shlex.split(answer["command"]) == ["tenscope", "diff", str(runs / "good"), str(runs / "bad")]
    assert eval(answer["python"], {"tenscope": tenscope}).first_divergence.name == "blocks.1.mlp.output"


def test_two_equal_runs(runs):
    with viewing(runs / "good", runs / "same") as viewer:
        answer = viewer.answer()
        said = tenscope_cli("diff", runs / "good", runs / "same").stdout
        assert answer["verdict"] == "equal" and answer["headline"] == said.splitlines()[0]
        assert answer["places"] == [] and answer["counts"]["bit_equal"] == answer["counts"]["compared"] > 0
        cells = viewer.json("timeline")["cells"]
        assert set(cells["verdict"]) == {EQUAL} and set(cells["adds"]) == {0}
        assert set(viewer.json("names")["verdict"]) == {EQUAL}
        assert {node["diff"] for node in viewer.json("modules")["nodes"]} == {"equal"}


def test_renamed_modules_have_both_names(runs):
    with viewing(runs / "good", runs / "renamed") as viewer:
        assert viewer.answer()["renamed"] == [["blocks", "layers"]]
        timeline = viewer.json("timeline")
        modules = {module["path"]: module for module in timeline["modules"]}
        assert not [path for path in modules if path.startswith("layers")], "it is told with its partner"
        assert set(timeline["cells"]["module"]) == set(range(len(modules))), "a module without cells"
        assert {module["side"] for module in modules.values()} == {"both"}
        assert modules["blocks.1.mlp"]["renamed"] == "layers.1.mlp" and modules["first"]["renamed"] is None
        nodes = {node["path"]: node for node in viewer.json("modules")["nodes"]}
        assert nodes["blocks.2"]["renamed"] == "layers.2"
        event = viewer.json("events", name="blocks.1.mlp.output", step=1)["events"][0]
        partner = viewer.json("event", side="b", event=event["partner"])
        assert (partner["name"], partner["step"], partner["partner"]) == ("layers.1.mlp.output", 1, event["id"])
        names = rows_of(viewer.json("names"))
        assert {row["name"] for row in names if row["first"] is None} == {
            name for name in tenscope.open(runs / "renamed").names() if name.startswith("layers")
        }
        output = next(row for row in names if row["name"] == "blocks.0.attn.output")
        assert output["verdict"] == EQUAL
        assert viewer.json("event", side="b", event=output["first_b"])["name"] == "layers.0.attn.output"


# The timeline.


def test_the_timeline_has_a_cell_for_each_module_and_step(bad):
    timeline = bad.viewer.json("timeline")
    assert timeline["judged"] and timeline["steps"] == list(range(STEPS)) and timeline["steps_together"] == 1
    paths = [module["path"] for module in timeline["modules"]]
    blocks = [f"blocks.{i}{rest}" for i in range(3) for rest in ("", ".attn", ".mlp")]
    assert paths == ["", "first", "blocks", *blocks, "last"]
    assert [module["depth"] for module in timeline["modules"]] == [path.count(".") + bool(path) for path in paths]
    assert {module["side"] for module in timeline["modules"]} == {"both"}
    cells = {(paths[c["module"]], c["step"], c["phase"]): c for c in rows_of(timeline["cells"])}
    assert {key[2] for key in cells} == {0, 2}
    assert len([key for key in cells if key[2] == 0]) == STEPS * len(paths)
    assert {cell["verdict"] for key, cell in cells.items() if key[2] == 2} == {EQUAL}
    wrong = paths.index("blocks.1.mlp")
    for (path, step, phase), cell in cells.items():
        if phase != 0:
            continue
        name = f"{path}.output".lstrip(".")
        a, b = bad.a[name, step], bad.b[name, step]
        event = bad.viewer.json("event", side=cell["side"], event=cell["event"])
        assert (event["name"], event["step"]) == (name, step)
        assert cell["error"] == pytest.approx(relative(a, b)) and cell["size"] == np.abs(a).max() and cell["bad"] == 0
        is_before = paths.index(path) < wrong and path not in ("", "blocks", "blocks.1")
        if path == "blocks.1.mlp" and step == 0:
            assert (cell["verdict"], cell["adds"]) == (STARTS, 1)
        elif is_before:
            assert (cell["verdict"], cell["adds"], cell["error"]) == (EQUAL, 0, 0)
        else:
            assert cell["verdict"] == FOLLOWS
            before = f"{path}.input.0".lstrip(".")
            given = relative(bad.a[before, step], bad.b[before, step])
            assert cell["adds"] == pytest.approx(np.clip(1 - given / cell["error"], 0, 1))


def test_a_module_of_one_side_only(tmp_path):
    model = network()
    longer = network()
    longer.children.append(Module("extra", seed=7, cls="Linear"))
    a, b = play(tmp_path / "a", model, 2), play(tmp_path / "b", longer, 2)
    for first, second, side in ((a, b, "b"), (b, a, "a")):
        with viewing(first, second) as viewer:
            answer = viewer.answer()
            unmatched = [one for one in answer["unmatched"] if one["module"] == "extra"]
            assert [(one["side"], one["class"]) for one in unmatched] == [(side, "Linear")]
            timeline = viewer.json("timeline")
            sides = {module["path"]: module["side"] for module in timeline["modules"]}
            assert sides.pop("extra") == side and set(sides.values()) == {"both"}
            place = [module["path"] for module in timeline["modules"]].index("extra")
            cells = [cell for cell in rows_of(timeline["cells"]) if cell["module"] == place]
            assert {cell["verdict"] for cell in cells} == {ALONE} and {cell["side"] for cell in cells} == {side}
            for cell in cells:
                assert viewer.json("event", side=cell["side"], event=cell["event"])["module"] == "extra"
            node = next(node for node in viewer.json("modules")["nodes"] if node["path"] == "extra")
            assert (node["diff"], node["side"]) == ("alone", side)


# Modules.


def test_the_module_tree(bad):
    nodes = bad.viewer.json("modules")["nodes"]
    assert [node["id"] for node in nodes] == list(range(len(nodes)))
    by_id = {node["id"]: node for node in nodes}
    assert nodes[0]["parent"] == -1 and nodes[0]["class"] == "Net" and nodes[0]["path"] == ""
    for node in nodes[1:]:
        parent = by_id[node["parent"]]
        assert node["parent"] < node["id"], "a module stands before those in it"
        assert node["path"].rpartition(".")[0] == parent["path"]
    folds = {node["path"]: node["fold"] for node in nodes if node["fold"]}
    assert folds == {f"blocks.{i}": "Block × 3" for i in range(3)}
    for node in nodes:
        assert node["calls"] == STEPS and node["outputs"] == ["4×8"] and node["nonfinite"] == "none"
        assert 0 <= node["own_s"] <= node["duration_s"]
    states = {node["path"]: node["diff"] for node in nodes}
    assert states["blocks.1.mlp"] == "differs" and states["first"] == states["blocks.0.mlp"] == "equal"
    assert states["last"] == states["blocks.2.attn"] == "differs"
    name = "blocks.1.mlp.output"
    worst = max(relative(bad.a[name, step], bad.b[name, step]) for step in range(STEPS))
    wrong = next(node for node in nodes if node["path"] == "blocks.1.mlp")
    assert wrong["error"] == pytest.approx(worst) and wrong["adds"] == 1


# Names, events, one event.


def test_names_are_in_order_of_appearance(bad):
    listed = bad.viewer.json("names")
    rows = rows_of(listed)
    order = list(dict.fromkeys(event.name for event in bad.a.events(kind="value")))
    assert [row["name"] for row in rows] == order
    for row in rows:
        events = list(bad.a.events(kind="value", name=row["name"]))
        assert row["events"] == len(events) and row["dtype"] == events[0].dtype and row["bad"] == 0
        assert row["shape"] == "×".join(map(str, events[0].shape)) and row["kind"] == "tensor"
        assert (row["module"], row["io"], row["phase"]) == (events[0].scope, events[0].io, events[0].phase)
        said = bad.viewer.json("events", name=row["name"])["events"]
        assert (row["first"], row["last"]) == (said[0]["id"], said[-1]["id"])
        assert row["first_b"] == said[0]["partner"]
        assert row["verdict"] == max(event["verdict"] for event in said)
        assert row["error"] == max(event["error"] for event in said)
    worst = {row["name"]: row["verdict"] for row in rows}
    assert worst["blocks.1.mlp.output"] == STARTS and worst["blocks.1.mlp.input.0"] == EQUAL
    assert worst["last.output"] == FOLLOWS


def test_events_of_a_name(bad):
    name = "blocks.2.attn.output"
    said = bad.viewer.json("events", name=name)
    assert said["total"] == STEPS and [event["step"] for event in said["events"]] == list(range(STEPS))
    for event in said["events"]:
        array = bad.a[name, event["step"]]
        tensor, stats = event["tensor"], event["tensor"]["stats"]
        assert (tensor["dtype"], tensor["shape"], tensor["has_bytes"]) == ("float32", [4, 8], True)
        assert (stats["min"], stats["max"], stats["count"]) == (array.min(), array.max(), array.size)
        assert stats["l2"] == pytest.approx(np.linalg.norm(array.astype("f8")))
        assert stats["mean"] == pytest.approx(array.astype("f8").mean())
        assert (stats["nan"], stats["zero"], stats["abs_max"]) == (0, 0, np.abs(array).max())
        assert event["verdict"] == FOLLOWS
        assert event["error"] == pytest.approx(relative(array, bad.b[name, event["step"]]))
        assert (event["io"], event["phase"], event["module"]) == ("output", "forward", "blocks.2.attn")
        assert event["time"] >= 0
        partner = bad.viewer.json("event", side="b", event=event["partner"])
        assert (partner["name"], partner["step"], partner["partner"]) == (name, event["step"], event["id"])
    assert bad.viewer.json("events", name=name, step=1)["events"] == said["events"][1:2]
    assert bad.viewer.json("events", name=name, offset=1, count=1) == {"total": STEPS, "events": said["events"][1:2]}
    assert bad.viewer.json("events", name=name, step=99) == {"total": 0, "events": []}
    assert bad.viewer.json("events", name=name, rank=1)["total"] == 0
    assert bad.viewer.json("events", name=name, offset=-5, count=10**18)["total"] == STEPS


def test_an_event_knows_its_neighbours(bad):
    ids = [event["id"] for event in bad.viewer.json("events", name="last.output")["events"]]
    for i, event in enumerate(ids):
        said = bad.viewer.json("event", event=event)
        assert said["previous"] == (ids[i - 1] if i else None)
        assert said["next"] == (ids[i + 1] if i + 1 < STEPS else None)
        assert said["calls"] == said["ranks"] == [{"id": event, "call": 0, "rank": 0}]
        assert [one["name"] for one in said["inputs"]] == ["last.input.0"]
        names = {one["name"] for one in said["same_module"]}
        assert "last.input.0" in names
        for one in said["same_module"]:
            assert bad.viewer.json("event", event=one["id"])["step"] in (i, 0)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two ranks, each with two calls a step."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(2):
        with tenscope.Run(folder, name="run", rank=rank, world_size=2, join=rank > 0) as run:
            for step in range(3):
                for call in range(2):
                    run.record("x", np.full(3, 100 * rank + 10 * step + call, np.float32), step=step)
    return folder / "run"


def test_ranks_and_calls(ranks):
    with viewing(ranks) as viewer:
        assert viewer.json("session")["sides"][0]["ranks"] == [0, 1]
        events = viewer.json("events", name="x")["events"]
        assert len(events) == 12
        where = {(event["rank"], event["step"], event["call"]): event["id"] for event in events}
        assert len(where) == 12 and len(set(where.values())) == 12
        for (rank, step, call), event in where.items():
            assert viewer.elements(event=event) == [[f"{100 * rank + 10 * step + call}.0"] * 3]
            said = viewer.json("event", event=event)
            assert said["previous"] == where.get((rank, step - 1, call))
            assert said["next"] == where.get((rank, step + 1, call))
            assert {one["id"] for one in said["calls"]} == {where[rank, step, other] for other in range(2)}
            assert {one["id"] for one in said["ranks"]} == {where[other, step, call] for other in range(2)}
            value = eval(said["python"], {"tenscope": tenscope})
            assert value.tolist() == [100 * rank + 10 * step + call] * 3, said["python"]
            words = shlex.split(said["command"])
            shown = json.loads(tenscope_cli(*words[1:], "--json").stdout)
            assert shown["values"] == [100 * rank + 10 * step + call] * 3, said["command"]
        only = viewer.json("events", name="x", rank=1, step=2, call=1)["events"]
        assert [event["id"] for event in only] == [where[1, 2, 1]]


def test_what_a_value_was_made_of(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for step in range(2):
            run.record("p", np.ones(2), step=step)
            run.record("q", np.ones(2), step=step)
            run.record("sum", np.ones(2) * 2, step=step, inputs=["p", "q"])
    with viewing(tmp_path / "run") as viewer:
        for event in viewer.json("events", name="sum")["events"]:
            made_of = viewer.json("event", event=event["id"])["inputs"]
            assert [one["name"] for one in made_of] == ["p", "q"]
            assert {viewer.json("event", event=one["id"])["step"] for one in made_of} == {event["step"]}


VALUES = {
    "int": 7,
    "largest": 2**53 - 1,
    "beyond": 2**53,
    "least": -(2**63),
    "big": 10**30,
    "true": True,
    "none": None,
    "text": 'a "quoted"\n<b>text</b>',
    "float": 0.1,
    "nan": float("nan"),
    "inf": float("-inf"),
}


def test_values_that_are_no_tensors(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for name, value in VALUES.items():
            run.record(name, value)
    with viewing(tmp_path / "run") as viewer:
        said = {name: viewer.json("events", name=name)["events"][0]["value"] for name in VALUES}
        exact = {"int", "largest", "true", "none", "text", "float"}
        assert {name: said[name] for name in exact} == {name: VALUES[name] for name in exact}
        # What a page's numbers cannot hold is text.
        assert (said["beyond"], said["least"], said["big"]) == (str(2**53), str(-(2**63)), str(10**30))
        assert (said["nan"], said["inf"]) == ("nan", "-inf")
        kinds = {row["name"]: row["kind"] for row in rows_of(viewer.json("names"))}
        assert kinds["int"] == kinds["float"] == "number" and kinds["text"] == "text"
        assert viewer.refusal("tile", event=viewer.event("int"))[0] in (400, 404)


# Series.


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A thousand steps, with single steps that stand out in one statistic each."""
    folder = tmp_path_factory.mktemp("long")
    rng = np.random.default_rng(3)
    arrays = rng.normal(size=(1000, 6)).astype(np.float32)
    arrays[333, 0] = np.nan
    arrays[444] = [-3, -3, -3, -3, -3, -3]
    arrays[555] = 0
    arrays[666, 1] = 900
    losses = np.exp(-np.arange(1000) / 300) + rng.normal(size=1000) / 100
    losses[777] = np.nan
    losses[123] = 50
    with tenscope.Run(folder, name="run") as run:
        for step in range(1000):
            run.record("x", arrays[step], step=step)
            run.record("loss", float(losses[step]), step=step)
    with viewing(folder / "run") as viewer:
        yield SimpleNamespace(viewer=viewer, arrays=arrays, losses=losses, run=tenscope.open(folder / "run"))


def spikes(values: np.ndarray, stretches: int) -> set[int]:
    """The places of the least and the largest of each stretch."""
    kept = set()
    for i in range(stretches):
        begin, end = i * len(values) // stretches, (i + 1) * len(values) // stretches
        part = values[begin:end]
        kept |= {begin + int(np.nanargmin(part)), begin + int(np.nanargmax(part))}
    return kept


@pytest.mark.parametrize("stat", ["min", "max", "mean", "std", "l2", "abs_max", "nan", "zero", "count"])
def test_a_series_over_steps(long, stat):
    stats = [getattr(event.stats, stat) for event in long.run.events(kind="value", name="x")]
    all_points = long.viewer.json("series", stat=stat, names="0", points=5000)["series"][0]
    assert all_points["a"] == [[step, value] for step, value in enumerate(stats)] and all_points["b"] == []
    few = long.viewer.json("series", stat=stat, names="0,0", points=40)["series"]
    assert few[0] == few[1] and len(few[0]["a"]) <= 40
    steps = [step for step, _ in few[0]["a"]]
    assert steps == sorted(set(steps))
    assert all(value == stats[step] for step, value in few[0]["a"])
    values = np.array(stats, np.float64)
    assert {values[step] for step in spikes(values, 20)} <= {value for _, value in few[0]["a"]}


def test_a_series_of_a_number_is_its_value(long):
    said = long.viewer.json("series", stat="l2", names="1", points=5000)["series"][0]["a"]
    np.testing.assert_array_equal(np.array([float(value) for _, value in said]), long.losses)
    few = long.viewer.json("series", stat="l2", names="1", points=20)["series"][0]["a"]
    assert len(few) <= 20
    kept = {step for step, _ in few}
    assert spikes(long.losses, 10) <= kept, "a NaN hides what is near it"


def test_a_series_of_the_error(bad):
    names = bad.viewer.json("names")["name"]
    number = names.index("blocks.2.mlp.output")
    said = bad.viewer.json("series", stat="error", names=number)["series"][0]
    expected = [relative(bad.a[names[number], step], bad.b[names[number], step]) for step in range(STEPS)]
    assert [step for step, _ in said["a"]] == list(range(STEPS))
    assert [value for _, value in said["a"]] == pytest.approx(expected)
    both = bad.viewer.json("series", stat="max", names=number)["series"][0]
    assert [value for _, value in both["b"]] == [bad.b[names[number], step].max() for step in range(STEPS)]


def test_runs_that_are_laid_out_differently(tmp_path):
    """Whole tensors are compared, which no event has: the timeline tells what was said of each module."""
    events = two_layers(steps=2)

    def halves(off):
        def cut(name, tensor, rank, _):
            if "weight" in name:
                return tensor
            part = np.split(tensor, 2)[rank]
            return part * np.float32(off if name in ("down.output", "output") else 1)

        return cut

    one = record_run(tmp_path, "one", 1, 1, whole, events)
    for name, off in (("same", 1), ("wrong", 1.5)):
        with viewing(one, record_run(tmp_path, name, 2, 1, halves(off), events)) as viewer:
            viewer.answer()
            timeline = viewer.json("timeline")
        cells = timeline["cells"]
        paths = [timeline["modules"][module]["path"] for module in cells["module"]]
        places = list(zip(paths, cells["step"], cells["phase"], strict=True))
        said = {place[:2]: verdict for place, verdict in zip(places, cells["verdict"], strict=True) if place[2] == 0}
        if off == 1:
            assert set(said.values()) == {EQUAL}
        else:
            assert said["down", 0] == STARTS and said["up", 1] == EQUAL
            assert said["down", 1] == STARTS and said["", 0] == FOLLOWS


def test_operations_inside_of_a_module_are_not_what_it_gives(tmp_path):
    """A mask is made of infinities, and the module is none the worse for it."""
    with tenscope.Run(tmp_path, name="run", metadata=False) as run:
        about = {"scope": "attn", "root": "Net#0", "cls": "Attention", "phase": "forward"}
        run.record("attn", kind="enter", **about)
        run.record("attn.input.0", np.ones(4, np.float32), io="input", **about)
        run.record("attn:masked_fill", np.array([1, -np.inf], np.float32), io="op", **about)
        run.record("attn.output", np.full(4, 2, np.float32), io="output", **about)
        run.record("attn", kind="exit", **about)
    with viewing(tmp_path / "run") as viewer:
        cells = viewer.json("timeline")["cells"]
        assert (cells["bad"], cells["size"]) == ([0], [2.0])
        assert [node["nonfinite"] for node in viewer.json("modules")["nodes"] if node["path"] == "attn"] == ["none"]
        names = viewer.json("names")
        assert names["io"][names["name"].index("attn:masked_fill")] == "op" and sum(names["bad"]) == 1
        assert viewer.json("live", revision=0)["bad"] == []
