"""The page of `tenscope view` in a real browser: it opens on the answer, and every view shows what was recorded."""

# ruff: noqa: F811  (fixtures are imported)

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from browser_page import browser, serving, show  # noqa: F401
from hand_written_run import tenscope as tenscope_cli
from hand_written_run import tenscope_program

ROOT = Path(__file__).resolve().parent.parent
STEPS = 3
MODULES = {
    "": "Net",
    "places": "Embedding",
    "blocks.0": "Block",
    "blocks.0.mlp": "Linear",
    "blocks.1": "Block",
    "blocks.1.mlp": "Linear",
    "head": "Linear",
}
WRONG = "blocks.1.mlp.output"
SLOW_SESSION = """(() => {
  const ask = fetch;
  globalThis.fetch = async (...words) => {
    if (words[0].startsWith("/api/session")) await new Promise((resolve) => setTimeout(resolve, 600));
    return ask(...words);
  };
})()"""


def make_weights():
    random = np.random.default_rng(1)
    return {name: random.normal(size=(16, 16)).astype(np.float32) / 4 for name in ("blocks.0.mlp", "blocks.1.mlp")}


def record_network(folder, name, is_wrong=False, is_sick=False):
    """A network of blocks, as a traced model records itself; `is_wrong`: a mistake in one module from step 1 on."""
    weights = make_weights()
    random = np.random.default_rng(2)
    with tenscope.Run(folder, name=name, metadata=False) as run:

        def of(module, what, value=None, step=0, **more):
            values = {} if value is None else {"value": value}
            run.record(what, **values, scope=module, root="Net#0", cls=MODULES[module], step=step, call=step, **more)

        for module, weight in weights.items():
            of(module, f"{module}.weight", weight, io="param", phase="init")
        for step in range(STEPS):
            run.step(step)

            def call(module, x, compute, step=step):
                """The call of a module, with what it takes and gives."""
                prefix = f"{module}." if module else ""
                of(module, module, step=step, kind="enter", phase="forward")
                of(module, f"{prefix}input.0", x, step=step, io="input", phase="forward")
                y = compute(x)
                of(module, f"{prefix}output", y, step=step, io="output", phase="forward")
                of(module, module, step=step, kind="exit", phase="forward")
                return y

            def linear(module, step=step):
                def compute(x):
                    y = (x @ weights[module]).astype(np.float32)
                    if is_wrong and module == "blocks.1.mlp" and step >= 1:
                        y[1, 3] += np.float32(0.5)
                        y[4, 7] -= np.float32(0.25)
                    return y

                return lambda x: call(module, x, compute)

            def head(x, step=step):
                y = np.tanh(x)
                if is_sick and step == 2:
                    y[0, 5] = np.nan
                    y[2, 1] = np.inf
                return y

            def network(x):
                x = call("places", x, lambda x: x + np.float32(0.5))
                x = call("blocks.0", x, lambda x: np.maximum(linear("blocks.0.mlp")(x), 0))
                x = call("blocks.1", x, lambda x: np.maximum(linear("blocks.1.mlp")(x), 0))
                return call("head", x, head)

            y = call("", random.normal(size=(6, 16)).astype(np.float32), network)
            run.record("loss", float(np.nan_to_num(y).mean()), step=step)
    return folder / name


def record_watched(folder, name):
    tenscope.init(folder, name=name, metadata=False)
    try:

        @tenscope.watch("loss", "w")
        def train():
            w = np.zeros(3, np.float32)
            loss = 8.0
            for i in range(3):
                w[i] = i + 1
                loss = loss / 2
            loss = float("nan")
            return loss

        train()
    finally:
        tenscope.close()
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "runs"
    record_network(folder, "good")
    record_network(folder, "bad", is_wrong=True)
    record_network(folder, "sick", is_sick=True)
    return folder


@pytest.fixture(scope="module")
def compared(runs):
    with serving(runs / "good", runs / "bad") as served:
        yield served


def read(run, name, step):
    return np.asarray(tenscope.open(run)[name, step])


# ---- the answer


def test_it_opens_on_the_answer(show, compared, runs):
    said = tenscope_cli("diff", runs / "good", runs / "bad", check=1).stdout.splitlines()
    tab = show(compared)
    assert tab.until_text(".headline", "divergence") == said[0]
    assert WRONG in said[0] and "step 1" in said[0]
    assert tab.texts(".answer .chip.big") == ["differs"]
    rows = dict(zip(tab.texts(".evidence dt"), tab.texts(".evidence dd"), strict=True))
    lines = [re.match(r"  (\w[\w ]*?)  +(.*)", line) for line in said[1:]]
    told = {found[1]: found[2] for found in reversed(lines) if found}
    assert {"why", "confidence", "module", "difference", "last agreeing"} <= set(rows) <= set(told)
    assert rows == {name: told[name] for name in rows}
    assert [side.inner_text() for side in tab.one(".side-label").all()] == ["good", "bad"]
    # The first place is opened by a key, and Back returns.
    tab.press("Enter")
    tab.until_at("tensor", name=WRONG, step=1)
    tab.until_text(".tv-title h1", WRONG)
    tab.page.go_back()
    tab.until_at("answer")
    tab.until_text(".headline", said[0])
    # The last that agreed, by its link and by its key.
    last = rows["last agreeing"].partition(" (")[0]
    assert np.array_equal(read(runs / "good", last, 1), read(runs / "bad", last, 1))
    tab.one(".card-links a", has_text="The last that agreed").click()
    tab.until_at("tensor", name=last, step=1)
    tab.until_text(".tv-title .chip", "equal")
    tab.page.go_back()
    tab.until_at("answer")
    tab.press("o")
    tab.until_at("tensor", name=last, step=1)


def test_a_link_opens_the_same_state_in_another_tab(show, compared):
    tab = show(compared, "tensor", name=WRONG, step=1)
    tab.until_text(".tv-title h1", WRONG)
    tab.press("w")
    tab.until_text(".tv-where", "[1, 3]")
    tab.press("t", "4")
    tab.until_at("tensor", name=WRONG, at="1,3", t="1", panes="a,b,diff,rel")
    other = show(compared, context=tab.page.context)
    other.page.goto(tab.page.url)
    other.until_text(".tv-where", "[1, 3]")
    assert other.one(".tv-pane").count() == 4
    assert other.one(".tv-slice-text button", has_text="⇄").get_attribute("aria-pressed") == "true"
    assert other.page.url == tab.page.url
    # Without the cookie there is nothing to see.
    stranger = show(compared, "answer", options={"extra_http_headers": {}})
    stranger.page.context.clear_cookies()
    stranger.allowed.append("403")
    assert stranger.page.goto(tab.page.url.replace("#", "?x=1#")).status == 403


def test_what_is_copied_runs(show, compared, runs):
    tab = show(compared, options={"permissions": ["clipboard-read", "clipboard-write"]})
    tab.until_text(".headline", "divergence")

    def copied(title):
        tab.one(".status button", has_text=title).click()
        tab.until_text(".toasts", "Copied")
        return tab.clipboard()

    def run(command):
        words = command.replace("tenscope ", f"{tenscope_program()} ", 1)
        return subprocess.run(words, shell=True, capture_output=True, text=True, cwd=runs)

    assert copied("Copy link") == tab.page.url
    command = copied("Copy command")
    assert command == f"tenscope diff {runs / 'good'} {runs / 'bad'}"
    done = run(command)
    assert done.returncode == 1 and done.stdout.splitlines()[0] == tab.text(".headline")
    python = copied("Copy Python")
    found = eval(python, {"tenscope": tenscope})
    assert str(found).splitlines()[0] == tab.text(".headline")
    for button in tab.one(".command").all():
        button.click()
        shown = button.inner_text().removeprefix("$").strip()
        tab.until(tab.clipboard, lambda text, shown=shown: text == shown)
        assert run(shown).returncode == 0
    # Of a tensor, with the slice that is shown.
    tab.go("tensor", name=WRONG, step=1, slice="2:4,1:9:2")
    tab.until_text(".tv-title h1", WRONG)
    tab.until(lambda: tab.one(".status button", has_text="Copy Python").count())
    want = read(runs / "good", WRONG, 1)[2:4, 1:9:2]
    tab.until(lambda: "1:9:2" in copied("Copy Python"))
    assert np.array_equal(np.asarray(eval(tab.clipboard(), {"tenscope": tenscope})), want)
    done = run(copied("Copy command"))
    assert done.returncode == 0, done.stderr
    assert f"{want[0, 0]:.4f}"[:6] in done.stdout.replace(" ", ""), done.stdout


def test_a_single_run_opens_on_its_health(show, runs):
    said = tenscope_cli("check", runs / "sick", check=1).stdout.splitlines()
    with serving(runs / "sick") as served:
        tab = show(served)
        headline = tab.until_text(".headline", lambda text: "…" not in text and text)
        assert tab.text(".answer .chip.big") == "unhealthy"
        assert headline in "\n".join(said)
        assert "head" in tab.text(".card-name")
        tab.press("Enter")
        tab.until_text(".tv-title h1", lambda name: name in ("head.output", "output"))
        with serving(runs / "good") as healthy:
            tab = show(healthy)
            tab.until_text(".answer .chip.big", "healthy")


def test_files_of_tensors(show, tmp_path):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = a.copy()
    b[2, 1] = -5
    for name, array in (("a", a), ("b", b)):
        np.savez(tmp_path / f"{name}.npz", weight=array, bias=a[0])
    said = tenscope_cli("diff", tmp_path / "a.npz", tmp_path / "b.npz", check=1).stdout
    with serving(tmp_path / "a.npz", tmp_path / "b.npz") as served:
        tab = show(served)
        tab.until_text(".answer .chip.big", "differs")
        assert "weight" in said and "weight" in tab.text(".card-name")
        assert not {"Timeline", "Modules", "Calls"} & set(tab.texts(".tab"))
        tab.press("Enter")
        tab.until_text(".tv-title h1", "weight")
        tab.press("w")
        tab.until_text(".tv-where", "[2, 1]")
    with serving(tmp_path / "b.npz") as served:
        tab = show(served)
        tab.until_text("main.view", "weight")
        tab.go("tensor", name="weight", at="2,1")
        tab.until_text(".tv-readout", "-5")


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
    count, modules = 600, 400
    with tenscope.Run(tmp_path, name="long", metadata=False) as run:
        for step in range(count):
            run.step(step)
            for module in range(modules):
                about = {"scope": f"m{module}", "root": "Net#0", "cls": "M", "phase": "forward", "io": "output"}
                run.record(f"m{module}.output", np.float32([step]), step=step, call=step, values="stats", **about)
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
    words = tab.until(lambda: tab.drawn(".icicle canvas"), lambda drawn: any("blocks" in word for word, *_ in drawn))
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


# ---- the shell


def test_the_palette_finds_by_a_few_letters(show, compared):
    tab = show(compared)
    tab.until_text(".headline", "divergence")
    tab.find_from_palette("b1mlpout")
    tab.until_text(".palette-row", WRONG)
    tab.press("Enter")
    tab.until_at("tensor", name=WRONG)
    tab.until_text(".tv-title h1", WRONG)
    assert tab.one(".palette").count() == 0
    tab.find_from_palette("timeline")
    tab.until_text(".palette-row.on", "Timeline")
    tab.press("Enter")
    tab.until_at("timeline")
    tab.find_from_palette("zzzzqqq")
    tab.until_text(".palette-note", "Nothing has these letters")
    tab.press("Escape")
    tab.until(lambda: tab.one(".palette").count() == 0)


def test_keys_themes_and_room(show, compared):
    tab = show(compared)
    tab.until_text(".headline", "divergence")
    tab.press("?")
    tab.until_text(".help", "open the tensor")
    help_text = tab.text(".help")
    assert "search everything" in help_text and "the last tensor that agreed" in help_text
    tab.press("Control+k")
    tab.until(lambda: tab.one(".palette").count() == 1 and tab.one(".help").count() == 0)
    tab.press("Escape", "?")
    tab.until_text(".help", "open the tensor")
    tab.press("Escape")
    tab.until(lambda: tab.one(".help").count() == 0)
    back = lambda: tab.page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    theme = lambda: tab.page.evaluate("document.documentElement.dataset.theme")  # noqa: E731
    before, was = back(), theme()
    tab.press("d")
    tab.until(theme, lambda now: now != was)
    assert back() != before
    # The choice is kept.
    tab.page.reload()
    tab.until_text(".headline", "divergence")
    assert theme() != was
    dark = show(compared, options={"color_scheme": "dark"})
    dark.until_text(".headline", "divergence")
    assert dark.page.evaluate("document.documentElement.dataset.theme") == "dark"
    # Nothing is wider than the window.
    for view in ("answer", "timeline", "modules", "table", "calls"):
        tab.go(view)
        tab.until(lambda: tab.one("main.view .skeleton").count() == 0)
        assert tab.overflow() <= 0, view
    tab.go("tensor", name=WRONG, step=1, panes="a,b,diff,rel,ulp")
    tab.until(lambda: tab.one(".tv-pane").count() == 5)
    assert tab.overflow() <= 0
    for width, height in ((1280, 720), (900, 600)):
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.wait_for_timeout(50)
        assert tab.overflow() <= 0, width


def test_a_click_through_all_views_breaks_no_policy(show, compared):
    """Nothing that the policy forbids happens on the way; Tab.check looks at what the browser has told."""
    tab = show(compared)
    told = tab.page.request.get(tab.origin + "/").headers["content-security-policy"]
    assert "script-src 'self'" in told and "unsafe" not in told
    tab.until_text(".headline", "divergence")
    seen = []
    for title in tab.texts(".tab"):
        tab.one(".tab", has_text=title).click()
        seen.append(tab.until(lambda: tab.view, lambda view, title=title: view == title.lower()))
        tab.until(lambda: tab.one("main.view .skeleton").count() == 0)
        tab.page.wait_for_timeout(60)
    assert seen == ["answer", "timeline", "modules", "table", "tensor", "calls"]
    # Without a tensor that was chosen the view says so.
    tab.go("tensor")
    tab.until_text("main.view", "No tensor was chosen")
    # Scripts of a page do not run under this policy: the test would see it if the policy were not there.
    tab.allowed.append("Content Security Policy")
    tab.allowed.append("policy violated: script-src")
    make = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
    tab.page.evaluate(f"() => {{ {make} }}")
    assert tab.page.evaluate("window.ran") is None
    tab.until(lambda: [error for error in tab.errors if "policy violated" in error])


# ---- a real model


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("gpt")
    started = []
    for name, edit in (("good", "is_causal=True"), ("bad", "is_causal=True, scale=0.1")):
        (folder / f"of_{name}").mkdir()
        for file in ("demo_gpt.py", "demo_bug.py"):
            text = (ROOT / "examples" / file).read_text()
            (folder / f"of_{name}" / file).write_text(text.replace("is_causal=True", edit))
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tenscope.run", "--out", folder, "--name", name, "demo_bug.py"],
                cwd=folder / f"of_{name}",
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        )
    for process in started:
        _, said = process.communicate()
        assert process.returncode == 0, said.decode()
    return folder


def test_a_real_model(show, gpt):
    said = tenscope_cli("diff", gpt / "good", gpt / "bad", check=1).stdout.splitlines()
    with serving(gpt / "good", gpt / "bad") as served:
        tab = show(served)
        assert tab.until_text(".headline", "divergence") == said[0]
        assert "blocks.0.attn" in said[0]
        # The lines of the module that were changed.
        (removed,), (added,) = tab.texts(".patch-removed .patch-text"), tab.texts(".patch-added .patch-text")
        assert removed == "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
        assert added == "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.1)"
        assert tab.texts(".patch-added mark") == [", scale=0.1"]
        lines = (ROOT / "examples" / "demo_gpt.py").read_text().splitlines()
        (number,) = (i for i, line in enumerate(lines, 1) if removed in line)
        assert tab.texts(".patch-removed .patch-number")[0] == str(number)
        tab.press("Enter")
        tab.until_at("tensor", name="blocks.0.attn.out.input.0", step=0)
        a, b = (read(gpt / name, "blocks.0.attn.out.input.0", 0) for name in ("good", "bad"))
        worst = np.unravel_index(np.abs(b - a).argmax(), a.shape)
        tab.until(lambda: tab.one(".tv-pane").count() == 3)
        tab.press("w")
        tab.until_text(".tv-where", f"[{', '.join(map(str, worst))}]")
        # The call of the next step has a number of its own; the key finds it all the same.
        tab.press("]")
        tab.until_at("tensor", name="blocks.0.attn.out.input.0", step=1)
        steps = "[data-section=steps] canvas[aria-label='a statistic over steps']"
        tab.until(lambda: {"0", "1"} <= set(tab.words(steps)))
        tab.press("[")
        tab.until_at("tensor", name="blocks.0.attn.out.input.0", step=0)
        tab.go("timeline")
        tab.until(lambda: tab.words(".matrix canvas"), lambda words: "blocks.0" in words)
        assert {"tokens", "places", "attn", "qkv"} <= set(tab.words(".matrix canvas"))
        assert tab.page.evaluate("document.title").startswith("Timeline")
