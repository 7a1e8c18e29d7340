"""What the page of `tenscope view` shows at a glance: a picture of the tensor, numbers over steps, where a NaN is."""

import numpy as np
import pytest
import tenscope
from browser_page import serving

STEPS, WORST = 5, (1, 7, 2)


def record(folder, name, is_wrong=False, is_sick=False):
    """One module over some steps, with a loss; `is_sick`: from step 3 on what it gives has a NaN."""
    random = np.random.default_rng(3)
    with tenscope.Run(folder, name=name, metadata=False) as run:
        for step in range(STEPS):
            run.step(step)
            about = {"scope": "net", "root": "Net#0", "cls": "Net", "phase": "forward", "step": step, "call": step}
            x = random.normal(size=(2, 8, 5)).astype(np.float32)
            y = np.tanh(x)
            if is_wrong:
                y[0, 0, 0] += np.float32(0.25)
                y[WORST] += np.float32(2)
            if is_sick and step >= 3:
                y[WORST] = np.nan
            run.record("net", kind="enter", **about)
            run.record("net.input.0", x, io="input", **about)
            run.record("net.output", y, io="output", **about)
            run.record("net", kind="exit", **about)
            run.record("rate", 0.5 / (step + 1), step=step)
            run.record("loss", float(np.nan_to_num(y).mean()), step=step)
            if is_sick:
                run.record("gone", np.full(3, np.nan if step >= 3 else 1.0), step=step)
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glance") / "runs"
    record(folder, "good")
    record(folder, "bad", is_wrong=True)
    record(folder, "sick", is_sick=True)
    return folder


def painted(tab, row, column, rows, columns):
    """The colour of an element of the answer's picture, a little away from its middle, where a ring may be."""
    box = tab.one(".glance-box canvas").bounding_box()
    return tab.pixel(".glance-box canvas", (column + 0.1) * box["width"] / columns, (row + 0.5) * box["height"] / rows)


def test_the_answer_has_a_picture_that_leads_to_the_worst_element(show, folder):
    a, b = (np.asarray(tenscope.open(folder / name)["net.output", 0]) for name in ("good", "bad"))
    difference = (b - a)[WORST[0]]
    assert np.unravel_index(np.abs(b - a).argmax(), a.shape) == WORST
    with serving(folder / "good", folder / "bad") as served:
        tab = show(served)
        tab.until_text(".glance-text", "[1,:,:]")
        assert "B − A" in tab.text(".glance-text")
        zero = tab.until(lambda: painted(tab, 0, 0, *difference.shape), lambda seen: seen != (0, 0, 0))
        for row, column in np.ndindex(difference.shape):
            is_same = painted(tab, row, column, *difference.shape) == zero
            assert is_same == (difference[row, column] == 0), (row, column)
        tab.one(".glance").click()
        tab.until_at("tensor", name="net.output", step=0, slice="1,:,:", at=",".join(map(str, WORST)))
        tab.until_text(".tv-where", "[1, 7, 2]")
        tab.page.go_back()
        tab.until_at("answer")
        # The key opens the same slice, and who is in one without a difference is led to it.
        tab.until_text(".glance-text", "[1,:,:]")
        tab.press("Enter")
        tab.until_at("tensor", name="net.output", step=0, slice="1,:,:", at=None)
        tab.go("tensor", name="net.output", step=0, slice="0,1:8,:")
        tab.until_text("[data-of=diff] .tv-range", "no difference in this slice")
        assert tab.one("[data-of=a] .tv-pane-foot .link").count() == 0
        tab.one("[data-of=diff] .tv-pane-foot .link").click()
        tab.until_at("tensor", at=",".join(map(str, WORST)))


def test_a_picture_shows_the_nan_and_a_run_its_numbers(show, folder):
    run = tenscope.open(folder / "sick")
    with serving(folder / "sick") as served:
        tab = show(served)
        tab.until_text(".glance-text", "A · [1,:,:]")
        tab.until(lambda: painted(tab, WORST[1], WORST[2], 8, 5), lambda seen: seen == (255, 0, 200))
        # Losses first; beside each name its last value, and a line with a point for each step.
        names = tab.until(lambda: tab.texts(".curve-name"), lambda now: len(now) == 2)
        assert names == ["loss", "rate"]
        tab.until(lambda: tab.one(".curve .spark-a").count() == 2)
        for name, last, line in zip(names, tab.texts(".curve-last"), tab.one(".curve .spark-a").all(), strict=True):
            values = [run[name, step] for step in range(STEPS)]
            assert float(last) == pytest.approx(values[-1], rel=1e-3)
            points = np.array([part.split() for part in line.get_attribute("d")[1:].split("L")], float)
            assert len(points) == STEPS
            # The line goes as the numbers do.
            assert np.corrcoef(points[:, 1], values)[0, 1] < -0.9999
        tab.one(".curve", has_text="rate").click()
        tab.until_at("tensor", name="rate")


def test_a_nan_is_strong_at_its_step_and_faint_at_others(show, folder):
    with serving(folder / "sick") as served:
        tab = show(served)
        tab.until(lambda: tab.one(".tree .mark.flag").count() == 1)
        assert tab.one(".tree .mark.nan:not(.elsewhere)").count() == 1  # at the step of the first NaN
        tab.press("Home")
        tab.until_at("answer", step=0)
        tab.until(lambda: tab.one(".tree .mark.nan.elsewhere").count() == 1)
        tab.press("End")
        tab.until(lambda: tab.one(".tree .mark.nan:not(.elsewhere)").count() == 1)


def test_wide_cells_of_the_timeline_have_their_numbers(show, folder):
    run = tenscope.open(folder / "good")
    sizes = [float(np.abs(np.asarray(run["net.output", step])).max()) for step in range(STEPS)]
    with serving(folder / "good") as served:
        tab = show(served, "timeline")
        drawn = tab.until(lambda: tab.drawn(".matrix canvas"), lambda found: any("." in text for text, *_ in found))
        heads = {text: x for text, x, y in drawn if y < 26 and text.isdigit()}
        row = next(y for text, _, y in drawn if text == "net")
        for step, size in enumerate(sizes):
            told = [text for text, x, y in drawn if abs(x - heads[str(step)]) < 2 and abs(y - row) < 2]
            assert len(told) == 1 and float(told[0]) == pytest.approx(size, rel=0.06)


def test_what_has_no_finite_value_has_no_size(show, folder):
    with serving(folder / "sick") as served:
        tab = show(served, "timeline")
        drawn = tab.until(lambda: tab.drawn(".matrix canvas"), lambda found: any(text == "gone" for text, *_ in found))
        heads = {round(x): int(text) for text, x, y in drawn if y < 26 and text.isdigit()}
        row = next(y for text, _, y in drawn if text == "gone")
        told = {heads[round(x + 0.5)]: text for text, x, y in drawn if abs(y - row) < 2 and round(x + 0.5) in heads}
        assert told == {0: "1", 1: "1", 2: "1"}
        cells = tab.ask("timeline")["cells"]
        (module,) = {cells["module"][i] for i in range(len(cells["bad"])) if cells["bad"][i] == 3}
        sizes = [size for size, of in zip(cells["size"], cells["module"], strict=True) if of == module]
        assert sizes == [1, 1, 1, "nan", "nan"]


def test_cells_beside_each_other_have_no_stripes_between_them(show, tmp_path):
    with tenscope.Run(tmp_path, name="long", metadata=False) as run:
        for step in range(301):
            run.record("x", 1.0, step=step)
    with serving(tmp_path / "long") as served:
        tab = show(served, "timeline")
        drawn = tab.until(lambda: tab.drawn(".matrix canvas"), lambda found: any(text == "x" for text, *_ in found))
        row = next(y for text, _, y in drawn if text == "x")
        colors = tab.page.evaluate(
            """(y) => {
              const canvas = document.querySelector(".matrix canvas"), g = canvas.getContext("2d");
              const data = new Uint32Array(g.getImageData(300, y, canvas.width - 330, 1).data.buffer);
              return [...new Set(data)].length;
            }""",
            row,
        )
        assert colors == 1


def test_canvases_grow_with_the_type_of_a_large_screen(show, folder):
    screens = [{"width": 1280, "height": 720}, {"width": 3840, "height": 2160}]
    canvases = {
        "answer": [".strip canvas"],
        "timeline": [".matrix canvas"],
        "calls": [".icicle canvas"],
        "tensor": ["[data-of=diff] canvas", "[data-of=diff] .tv-bar", "[data-section=histogram] canvas"],
    }
    with serving(folder / "good", folder / "bad") as served:
        small, large = (show(served, options={"viewport": screen}) for screen in screens)
        for view, selectors in canvases.items():
            for tab in (small, large):
                tab.go(view, **({"name": "net.output", "step": 0} if view == "tensor" else {}))
            for selector in selectors:
                # In larger panes some texts have room that have none in smaller ones.
                of_small, of_large = (
                    min(tab.until(lambda tab=tab, of=selector: tab.text_sizes(of))) for tab in (small, large)
                )
                assert of_small >= 10 and of_large == pytest.approx(of_small * 17 / 13, rel=1e-4), view
        # What is drawn larger is found where it is seen.
        large.go("timeline")
        drawn = large.until(lambda: large.drawn(".matrix canvas"))
        x = next(x for text, x, y in drawn if text == "3" and y < 40)
        y = next(y for text, _, y in drawn if text == "net")
        box = large.one(".matrix canvas").first.bounding_box()
        large.page.mouse.move(box["x"] + x, box["y"] + y)
        large.until_text(".tip", "step\n3")
        large.page.mouse.click(box["x"] + x, box["y"] + y)
        large.until_at("tensor", name="net.output", step=3)
        large.go("answer")
        large.until(lambda: large.words(".strip canvas"))
        box = large.one(".strip canvas").bounding_box()
        large.page.mouse.click(box["x"] + box["width"] / 3, box["y"] + 20)
        large.until_at("tensor", name="net.output", step=0)
        large.go("calls", step=2)
        _, x, y = large.until(
            lambda: [each for each in large.drawn(".icicle canvas") if each[0].startswith("net")], lambda seen: seen
        )[0]
        box = large.one(".icicle canvas").bounding_box()
        large.page.mouse.move(box["x"] + x, box["y"] + y)
        large.until_text(".tip", "net")
        # The numbers of rows and columns that are seen in part are there, too.
        small.go("tensor", name="net.output", step=0, slice="0,:,:", zoom="0.3:3.4,0.2:2.6", panes="a")
        small.until(lambda: {"0", "1", "2", "3"} <= set(small.words("[data-of=a] canvas")))


def test_states_say_what_is_missing_and_what_to_do(show, folder, tmp_path):
    with tenscope.Run(tmp_path, name="empty", metadata=False):
        pass
    with serving(tmp_path / "empty") as served:
        tab = show(served)
        tab.until_text(".state-box", "There is nothing to check")
        assert "tenscope.trace(model)" in tab.text(".state-box") and "partner" not in tab.text("main.view")
        assert tab.one(".strip").count() == 0
    with pytest.raises(RuntimeError), tenscope.Run(tmp_path, name="failed", metadata=False) as run:
        run.record("x", np.arange(4.0))
        raise RuntimeError("out of memory")
    with serving(tmp_path / "failed") as served:
        tab = show(served)
        tab.until_text(".headline", "the program failed: RuntimeError: out of memory")
        # Values in no module are in no phase.
        assert tab.until(lambda: tab.words(".strip canvas")) == ["x"]
    with serving(folder / "good") as served:
        tab = show(served, "tensor", name="net.output", step=1)
        tab.until_text(".tv-title h1", "net.output")
        tab.allowed.append("404")
        # The picture of another tensor would be taken for the one that was asked for.
        tab.go("tensor", name="nobody", step=1)
        tab.until_text(".failure", "nobody")
        assert tab.one(".tv-pane").count() == 0
        tab.one(".failure a").click()
        tab.until_at("table")


def test_a_healthy_run_says_where_to_go_on(show, folder):
    with serving(folder / "good") as served:
        tab = show(served)
        tab.until_text(".headline", "Nothing looks wrong")
        tab.one(".state-box a", has_text="table").click()
        tab.until_at("table")


WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries()) {
    for (const { node } of sources) shifts.push([value, String(node?.className ?? node?.nodeName)]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""


def test_nothing_moves_while_it_loads(show, folder):
    with serving(folder / "good", folder / "bad") as served:
        tab = show(served)
        tab.until_text(".headline", "divergence")
        tab.page.add_init_script(WATCH_SHIFTS)
        for view, ready in (
            ("answer", ".glance-text"),
            ("timeline", ".matrix canvas"),
            ("modules", ".grid-row"),
            ("table", ".grid-row"),
            ("calls", ".icicle canvas"),
        ):
            tab.page.goto("about:blank")
            tab.go(view)
            tab.until(lambda ready=ready: tab.one(ready).count() > 0)
            tab.page.wait_for_timeout(150)
            # On a slow machine the bones of the whole view are seen before it is known what is beside it.
            seen = tab.page.evaluate("shifts")
            moved = [(value, what) for value, what in seen if value > 0.01 and what.split()[0] != "view"]
            assert moved == [], view
