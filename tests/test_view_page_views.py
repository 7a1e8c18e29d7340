"""The views of `tenscope view` in a real browser: each shows what was recorded, and leads to it."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import tenscope
from browser_page import serving
from recorded_network import MODULES, WRONG, read, record_networks, record_watched
from viewed_runs import STEPS

SLOW_SESSION = """(() => {
  const ask = fetch;
  globalThis.fetch = async (...words) => {
    if (words[0].startsWith("/api/session")) await new Promise((resolve) => setTimeout(resolve, 600));
    return ask(...words);
  };
})()"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return record_networks(tmp_path_factory.mktemp("page") / "runs")


@pytest.fixture(scope="module")
def compared(runs):
    with serving(runs / "good", runs / "bad") as served:
        yield served


# ---- timeline


def test_the_timeline_names_modules_by_their_nearest_ancestor(show, compared):
    tab = show(compared, "timeline")
    tab.until(lambda: tab.words(".matrix canvas"), lambda words: "places" in words)
    drawn = tab.drawn(".matrix canvas")
    gutter = {text: (x, y) for text, x, y in drawn if x < 150}
    names = {"mlp", "Net#0", *MODULES} - {""}
    order = [text for text, _, _ in sorted(drawn, key=lambda each: each[2]) if text in names]
    assert order == ["Net#0", "places", "blocks.0", "mlp", "blocks.1", "mlp", "head"]
    assert "0" not in {text for text, x, _ in drawn if x < 150}
    # A block is no part of what stands above it.
    assert gutter["blocks.0"][0] == gutter["places"][0] == gutter["head"][0] > gutter["Net#0"][0]
    assert gutter["mlp"][0] > gutter["blocks.1"][0]
    assert [text for text, x, y in drawn if y < 20 and x > 150] == ["0", "1", "2"]
    # The first bad place, by the keyboard.
    tab.press("f", "ArrowRight", "ArrowLeft")
    hint = tab.until_text(".status-hint", "blocks.1.mlp")
    assert "step 1" in hint and "start" in hint
    tab.press("Enter")
    tab.until_at("tensor", name=WRONG, step=1)


def test_a_cell_of_the_timeline_tells_and_opens(show, compared, runs):
    tab = show(compared, "timeline")
    tab.until(lambda: tab.words(".matrix canvas"), lambda words: "head" in words)
    places = {text: (x, y) for text, x, y in tab.drawn(".matrix canvas")}
    box = tab.one(".matrix canvas").first.bounding_box()
    x, y = box["x"] + places["2"][0], box["y"] + places["head"][1]
    tab.page.mouse.move(x, y)
    told = tab.until_text(".tip", "head")
    a, b = (read(runs / name, "head.output", 2).astype(np.float64) for name in ("good", "bad"))
    error = np.linalg.norm(b - a) / np.linalg.norm(a)
    assert float(re.search(r"error\s+(\S+)", told)[1]) == pytest.approx(error, rel=1e-3)
    assert float(re.search(r"largest\s+(\S+)", told)[1]) == pytest.approx(np.abs(a).max(), rel=1e-3)
    assert re.search(r"step\s+2\b", told) and "forward" in told
    tab.page.mouse.click(x, y)
    tab.until_at("tensor", name="head.output", step=2)
    tab.page.go_back()
    # A click on a module folds it.
    tab.until(lambda: tab.words(".matrix canvas").count("mlp"), lambda count: count == 2)
    tab.page.mouse.click(box["x"] + places["blocks.0"][0] + 5, box["y"] + places["blocks.0"][1])
    tab.until(lambda: tab.words(".matrix canvas").count("mlp"), lambda count: count == 1)
    # What is not shown is not there: the colours of equal and of differing cells are two.
    place = {text: (x, y) for text, x, y in tab.drawn(".matrix canvas")}
    equal = tab.pixel(".matrix canvas", places["0"][0], place["head"][1])
    other = tab.pixel(".matrix canvas", places["2"][0], place["head"][1])
    assert equal != other


def test_steps_put_together_are_said_at_the_axis(show, tmp_path):
    """More cells than the timeline has: several steps share a column."""
    count, modules = 501, 400
    with tenscope.Run(tmp_path, name="long", metadata=False) as run:
        for step in range(count):
            run.step(step)
            for module in range(modules):
                about = {"scope": f"m{module}", "root": "Net#0", "cls": "M", "phase": "forward", "io": "output"}
                run.record(f"m{module}.output", float(step), step=step, call=step, **about)
    with serving(tmp_path / "long") as served:
        tab = show(served, "timeline")
        tab.until(lambda: tab.words(".matrix canvas"), lambda words: "m1" in words, seconds=60)
        together = tab.ask("timeline")["steps_together"]
        assert together == 2
        drawn = tab.drawn(".matrix canvas")
        (title,) = [text for text, _, _ in drawn if text.startswith("step")]
        columns = int(re.fullmatch(r"step, (\d+) to a column", title)[1])
        assert columns % together == 0
        shown = [int(text) for text, _, y in drawn if text.isdigit() and y < 20]
        assert shown[0] == 0 and all(step % columns == 0 for step in shown)


# ---- modules, table, lines, calls, runs


def test_modules_as_a_tree_and_as_boxes(show, compared):
    tab = show(compared, "modules")
    tab.until_text(".grid-body", "places")
    names = tab.texts(".module-cell .mono")
    assert names == ["Net#0", "places", "blocks.0", "mlp", "blocks.1", "mlp", "head"]
    rows = [row.inner_text().split("\n") for row in tab.one(".grid-row").all()]
    for row, cls in zip(rows, MODULES.values(), strict=True):
        assert cls in row and str(STEPS) in row and "6×16" in row
    # How they stand is that of the step of the first divergence.
    tones = [tab.one(".module-cell .swatch").nth(i).get_attribute("class").split()[-1] for i in range(len(names))]
    assert tones[1:4] == ["equal"] * 3 and tones[5] == "starts" and tones[6] not in ("equal", "starts")
    tab.one("input[aria-label='Filter modules']").fill("head")
    tab.until(lambda: tab.texts(".module-cell .mono"), lambda now: now == ["Net#0", "head"])
    tab.press("Escape")
    tab.go("modules", **{"as": "graph"})
    tab.until(lambda: tab.texts(".box-name"), lambda now: {"places", "blocks × 2", "head"} <= set(now))
    tab.go("modules")
    tab.one(".grid-row", has_text="head").click()
    tab.until_at("tensor", name="head.output", step=1)


def test_the_table_filters_and_sorts(show, compared, runs):
    tab = show(compared, "table")
    tab.until_text(".grid-body", WRONG)
    reader = tenscope.open(runs / "good")
    every = sorted({event.name for event in reader.events() if event.kind == "value"})
    tab.until_text(".toolbar .muted.num", f"{len(every)} of {len(every)}")
    head = lambda name: tab.one(".grid-head button", has_text=re.compile(f"^{name}"))  # noqa: E731
    names = lambda: [text.strip() for text in tab.texts(".name-cell")]  # noqa: E731
    head("name").click()
    tab.until(names, lambda now: now == every[: len(now)] and len(now) > 10)
    head("name").click()
    tab.until(names, lambda now: now == every[::-1][: len(now)] and len(now) > 10)
    # By how much they differ, as numpy has it.
    head("error").click()
    errors = {}
    for name in every:
        if name == "loss":
            continue
        pairs = [
            (read(runs / "good", name, step).astype(np.float64), read(runs / "bad", name, step).astype(np.float64))
            for step in ([0] if name.endswith("weight") else range(STEPS))
        ]
        errors[name] = max(np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in pairs)
    worst = max(errors.values())
    first = tab.until(names, lambda now: now and now[0] != every[-1])[0]
    assert first == "loss" or errors[first] == worst
    shown = {}
    for row in tab.one(".grid-row").all():
        cells = row.inner_text().split("\n")
        numbers = [cell for cell in cells if re.fullmatch(r"[\d.]+(e-?\d+)?", cell)]
        shown[cells[0]] = float(numbers[-1])
    for name, error in errors.items():
        if name in shown:
            assert shown[name] == pytest.approx(error, rel=6e-3), name
    # Words, a glob, and only what differs.
    tab.press("f")
    tab.page.keyboard.type("mlp out")
    tab.until(names, lambda now: sorted(now) == ["blocks.0.mlp.output", WRONG])
    assert tab.parameters["filter"] == "mlp out"
    tab.one("input[aria-label='Filter names']").fill("blocks.*.weight")
    tab.until(names, lambda now: sorted(now) == ["blocks.0.mlp.weight", "blocks.1.mlp.weight"])
    tab.one("input[aria-label='Filter names']").fill("no such thing")
    tab.until_text(".state-box", "No name matches")
    tab.one(".state-box button").click()
    tab.one("select[aria-label='Which']").select_option("differ")
    differing = {name for name, error in errors.items() if error > 0} | {"loss"}
    tab.until(names, lambda now: set(now) == differing)
    # A row is opened by the keyboard.
    tab.one("select[aria-label='Which']").select_option("")
    head("name").click()
    tab.press("j", "j", "Enter")
    tab.until_at("tensor", name=every[1])


def test_numbers_over_steps(show, compared, runs):
    tab = show(compared, "tensor", name="loss", step=1)
    tab.until_text(".tv-title h1", "loss")
    rows = tab.until(lambda: tab.table(".tv-history tbody tr"), lambda rows: len(rows) == STEPS and len(rows[0]) == 3)
    for step, cells in enumerate(rows):
        values = [tenscope.open(runs / name)["loss", step] for name in ("good", "bad")]
        assert int(cells[0]) == step and [float(cell) for cell in cells[1:]] == pytest.approx(values)


def test_lines_that_were_watched(show, tmp_path):
    run = record_watched(tmp_path, "watched")
    with serving(run) as served:
        tab = show(served, "lines")
        tab.until_text(".code", "loss = loss / 2")
        line = tab.one(".code-line", has_text="loss = loss / 2")
        assert "×3" in line.inner_text()
        variables = tab.texts(".lines-var")
        assert {text.split()[0] for text in variables} == {"loss", "w"}
        changes = int(re.search(r"of (\d+)", tab.text(".toolbar .num"))[1])
        tab.press("Home")
        tab.until_text(".toolbar .num", "change 1 of")
        seen = []
        for i in range(changes):
            tab.until_text(".toolbar .num", f"change {i + 1} of")
            seen.append(dict(zip(tab.texts(".watch-name span:first-child"), tab.texts(".watch-value"), strict=True)))
            tab.press("ArrowRight")
        losses = [now["loss"] for now in seen if "loss" in now]
        assert [value for value, _ in itertools.groupby(losses)] == ["8", "4", "2", "1", "NaN"]
        assert "float32 3" in seen[-1]["w"] and "1 … 3" in seen[-1]["w"]
        tab.press("Home", "n")
        tab.until_text(".code-line.on", 'float("nan")')
        assert tab.overflow() <= 0
        tab.one(".watch-now a").first.click()
        tab.until_at("tensor")
        tab.until_text(".tv-title h1", "w")


def test_calls_lie_in_each_other(show, compared):
    tab = show(compared, "calls", step=1)
    tab.until_text(".toolbar", f"{len(MODULES)} calls")
    # Names are drawn where a call took long enough, which the outermost always did.
    words = tab.until(lambda: tab.drawn(".icicle canvas"), lambda drawn: any("Net" in word for word, *_ in drawn))
    calls = tab.ask("calls", step=1)["calls"]
    depths = {call["name"]: call["depth"] for call in calls}
    assert depths["blocks.0.mlp"] == depths["blocks.0"] + 1 == depths["head"] + 1
    times = {call["name"]: (call["start"], call["start"] + call["duration"]) for call in calls}
    for inner, outer in (("blocks.0.mlp", "blocks.0"), ("blocks.1.mlp", "blocks.1"), ("head", "Net#0")):
        assert times[outer][0] <= times[inner][0] and times[inner][1] <= times[outer][1] + 1e-9
    # The outermost fills the width; a click on it chooses it, another opens what it gave.
    top = min(y for word, _, y in words if y > 24)
    box = tab.one(".icicle canvas").bounding_box()
    tab.page.mouse.move(box["x"] + 300, box["y"] + top)
    told = tab.until_text(".tip", "Net")
    assert "100.0 %" in told
    tab.page.mouse.click(box["x"] + 300, box["y"] + top)
    tab.one(".toolbar button", has_text="Look at what").click()
    tab.until_at("tensor", step=1)
    tab.until_text(".tv-title h1", "output")


def test_a_folder_of_runs(show, runs):
    with serving(runs) as served:
        tab = show(served)
        tab.until_text(".toolbar h1", "3 recordings")
        rows = tab.one(".grid-row").all()
        names = [row.locator(".mono").first.inner_text() for row in rows]
        assert sorted(names) == ["bad", "good", "sick"]
        for row, name in zip(rows, names, strict=True):
            cells = row.inner_text().split("\n")
            assert "closed" in cells and str(STEPS) in cells
            events = len(list(tenscope.open(runs / name).events()))
            assert f"{events:,}" in cells
        tab.one("input[aria-label='Filter recordings']").fill("goo")
        tab.until(lambda: tab.one(".grid-row").count(), lambda count: count == 1)
        tab.one("input[aria-label='Filter recordings']").fill("")
        tab.until(lambda: tab.one(".grid-row").count(), lambda count: count == 3)
        tab.one("button[aria-label='Choose good']").click()
        tab.one("button[aria-label='Choose bad']").click()
        tab.one(".toolbar button", has_text="Compare").click()
        tab.until_at("answer", run="good", against="bad")
        tab.until_text(".headline", WRONG)
        tab.press("Enter")
        tab.until_at("tensor", run="good", against="bad", name=WRONG)
        tab.until_text(".tv-title h1", WRONG)
        # The view that is left asks for nothing more, however long the list takes to come.
        tab.page.evaluate(SLOW_SESSION)
        for _ in range(2):
            tab.page.go_back()
        tab.until_text(".toolbar h1", "3 recordings")
        # One alone, by a click.
        tab.one(".grid-row", has_text="sick").click()
        tab.until_at("answer", run="sick", against=None)
        tab.until_text(".answer .chip.big", "unhealthy")
