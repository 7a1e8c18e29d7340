"""The page of `tenscope view` in a real browser: hostile recordings, very many names, live runs, exported pages."""

import html
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import tenscope
from browser_page import LISTEN, serving
from hand_written_run import tenscope as tenscope_cli

BREAKS_OUT = "__pwned=1"
HOSTILE = [
    f"<script>{BREAKS_OUT}</script>",
    f'<img src=x onerror="{BREAKS_OUT}">',
    f"\"'><svg onload={BREAKS_OUT}>",
    f"</title></script><script>{BREAKS_OUT}</script>",
    f"javascript:{BREAKS_OUT}",
    'it\'s "quoted" & <b>bold</b> &amp; \\ `back`',
    "two\nlines\r\nand\ttabs",
    "controls \x01\x07\x1b[31m red",
    "right \u202e to left \u2066 and \u200f back",
    "a#b?c=d&e=f%20g+h;/../i",
    "${7*7} {{7*7}} <%= 7*7 %>",
    "漢字 🙂 e\u0301",
    "__proto__",
    "constructor",
    "long " + "x" * 3000,
]


def record_hostile(folder, name, is_wrong):
    """Hostile texts wherever a recording has text: names, modules, classes, values, sites."""
    random = np.random.default_rng(3)
    with tenscope.Run(folder, name=name, metadata=False) as run:
        for step in range(2):
            run.step(step)
            for at, text in enumerate(HOSTILE):
                # A dot would be a module in a module.
                module = text.replace(".", "_")
                about = {"scope": module, "root": HOSTILE[0], "cls": HOSTILE[1], "step": step, "phase": "forward"}
                site = f"{HOSTILE[0]}.py:{at}"
                x = random.normal(size=(3, 4)).astype(np.float32)
                y = x + np.float32(at == 1 and is_wrong)
                run.record(module, kind="enter", **about)
                run.record(f"{module}.input.0", x, io="input", site=site, **about)
                run.record(f"{module}.output", y, io="output", site=site, **about)
                run.record(module, kind="exit", **about)
                run.record(f"said {at}", text, step=step)
    return folder / name


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    names = [f"<img src=x onerror={BREAKS_OUT}>", f"'\"><script>{BREAKS_OUT}<"]
    return [record_hostile(folder, name, is_wrong) for name, is_wrong in zip(names, (False, True), strict=True)]


def assert_nothing_ran(tab):
    assert tab.page.evaluate("window.__pwned") is None
    assert tab.page.evaluate("document.querySelectorAll('img, svg[onload], body script').length") == 0


def test_hostile_names_are_text(show, hostile):
    with serving(*hostile) as served:
        tab = show(served)
        headline = tab.until_text(".headline", "divergence")
        assert HOSTILE[1] in headline
        labels = [label.text_content() for label in tab.one(".side-label").all()]
        assert labels == [path.name for path in hostile]
        for view in ("timeline", "modules", "calls"):
            tab.go(view)
            tab.until(lambda: tab.one("main.view .skeleton").count() == 0)
            tab.page.wait_for_timeout(60)
            assert_nothing_ran(tab)
        tab.go("modules")
        tab.until(lambda: tab.one(".module-cell").count() > 5)
        shown = [cell.text_content() for cell in tab.one(".module-cell .mono").all()]
        assert set(shown) >= {text.replace(".", "_") for text in HOSTILE[:5]}
        # Every name is in the table as it is, and leads to its tensor.
        tab.go("table")
        tab.until(lambda: tab.one(".name-cell").count() > 5)
        for text in HOSTILE:
            name = f"{text.replace('.', '_')}.output"
            words = [word for word in name[:40].split() if "*" not in word]  # With a star it is a glob.
            tab.go("table", filter=" ".join(words))
            tab.until(lambda name=name: name in [cell.text_content() for cell in tab.one(".name-cell").all()])
        assert_nothing_ran(tab)
        for text in HOSTILE:
            name = f"{text.replace('.', '_')}.output"
            tab.go("tensor", name=name, step=1)
            title = "document.querySelector('.tv-title h1')?.textContent"
            tab.until(lambda name=name, title=title: tab.page.evaluate(title) == name)
            assert tab.overflow() <= 0, name
        tab.until(lambda: tab.one(".tv-pane").count() == 3)
        assert_nothing_ran(tab)
        # The palette, values that are text, and the address of a name with everything in it.
        tab.find_from_palette("onerror output")
        tab.until_text(".palette-row", "onerror")
        tab.press("Enter")
        tab.until(lambda: "onerror" in tab.parameters.get("name", ""))
        for at, text in enumerate(HOSTILE):
            tab.go("tensor", name=f"said {at}", step=0)
            tab.until(lambda text=text: text in tab.page.evaluate("document.querySelector('main.view').textContent"))
        assert_nothing_ran(tab)


def test_hostile_runs_in_a_list_and_in_a_file(show, hostile, tmp_path):
    with serving(hostile[0].parent) as served:
        tab = show(served)
        tab.until_text(".toolbar h1", "2 recordings")
        assert {cell.text_content() for cell in tab.one(".grid-row .mono").all()} >= {path.name for path in hostile}
        tab.one(".grid-row").first.click()
        tab.until(lambda: tab.parameters.get("run") in {path.name for path in hostile})
        tab.until(lambda: tab.one(".answer .chip.big").count())
        assert_nothing_ran(tab)
    page = tmp_path / "page.html"
    tenscope_cli("view", *hostile, "--export", page, check=None)
    tab = show(page.as_uri())
    assert HOSTILE[1] in tab.until_text(".headline", "divergence")
    tab.press("Enter")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)
    assert tab.page.evaluate("window.__pwned") is None
    assert tab.page.evaluate("document.querySelectorAll('img, svg[onload]').length") == 0


def test_a_hundred_thousand_names(show, tmp_path, capsys):
    count = 100_000
    with tenscope.Run(tmp_path, name="many", metadata=False) as run:
        for i in range(count):
            run.record(f"layer.{i // 100}.part.{i % 100}", float(i), step=0)
    with serving(tmp_path / "many") as served:
        tab = show(served, "table")
        start = time.perf_counter()
        tab.until_text(".toolbar .muted.num", "100,000 of 100,000", seconds=60)
        took = {"the table": time.perf_counter() - start}
        assert tab.one(".grid-row").count() < 100, "only what is seen is made"
        start = time.perf_counter()
        tab.one("input[aria-label='Filter names']").fill("layer.777.part.42")
        tab.until(lambda: tab.texts(".name-cell"), lambda names: names == ["layer.777.part.42"])
        took["a filter"] = time.perf_counter() - start
        tab.one("input[aria-label='Filter names']").fill("")
        tab.until_text(".toolbar .muted.num", "100,000 of 100,000")
        start = time.perf_counter()
        tab.one(".grid-head button", has_text="name").click()
        tab.one(".grid-head button", has_text="name").click()
        tab.until(lambda: tab.texts(".name-cell")[0] == "layer.999.part.99")
        took["sorting twice"] = time.perf_counter() - start
        tab.page.evaluate("document.activeElement.blur()")
        start = time.perf_counter()
        tab.find_from_palette("l123p45")
        tab.until(lambda: "layer.123.part.45" in tab.texts(".palette-title"))
        took["the palette"] = time.perf_counter() - start
        rows = tab.texts(".palette-title")
        for _ in range(rows.index("layer.123.part.45")):
            tab.press("ArrowDown")
        tab.press("Enter")
        tab.until_at("tensor", name="layer.123.part.45")
        tab.until_text(".tv-scalar pre", "12345")
    with capsys.disabled():
        print("\n100,000 names:", ", ".join(f"{what} {1000 * seconds:.0f} ms" for what, seconds in took.items()))


def test_nan_everywhere(show, tmp_path):
    shape = (5, 6)
    for name in ("a", "b"):
        with tenscope.Run(tmp_path, name=name, metadata=False) as run:
            for step in range(3):
                run.step(step)
                about = {"scope": "m", "root": "M#0", "cls": "M", "phase": "forward", "step": step}
                run.record("m", kind="enter", **about)
                run.record("m.input.0", np.full(shape, np.nan, np.float32), io="input", **about)
                run.record("m.output", np.full(shape, np.inf if step else -np.inf, np.float32), io="output", **about)
                run.record("m", kind="exit", **about)
                run.record("loss", float("nan"), step=step)
    for sides in ((tmp_path / "a",), (tmp_path / "a", tmp_path / "b")):
        with serving(*sides) as served:
            look_around(show(served))


def look_around(tab):
    tab.until(lambda: tab.one(".answer .chip.big").count())
    for view in ("timeline", "modules", "table", "calls"):
        tab.go(view)
        tab.until(lambda: tab.one("main.view .skeleton").count() == 0)
        tab.page.wait_for_timeout(50)
    for name in ("m.input.0", "m.output", "loss"):
        tab.go("tensor", name=name, step=1)
        tab.until_text(".tv-title h1", name)
        tab.press("n", "l", "w", "s", "z")
        tab.page.wait_for_timeout(50)
        assert {"NaN", "nan", "Inf"} & set(re.findall(r"\w+", tab.text("main.view")))


# ---- live

CHILD = """
import sys
import numpy as np
import tenscope

with tenscope.Run(sys.argv[1], name="live", metadata=False) as run:
    for step, line in enumerate(sys.stdin):
        run.step(step)
        x = np.full((4, 4), step, np.float32)
        about = {"scope": "net", "root": "Net#0", "cls": "Net", "phase": "forward", "step": step}
        run.record("net", kind="enter", **about)
        run.record("net.input.0", x, io="input", **about)
        if line.strip() == "nan":
            x[1, 2] = np.nan
        run.record("net.output", x, io="output", **about)
        run.record("net", kind="exit", **about)
        run.flush()
        print(step, flush=True)
"""


@pytest.fixture
def child(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    process = subprocess.Popen(
        [sys.executable, script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    process.run = tmp_path / "live"

    def step(word="go"):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    process.step = step
    yield process
    process.kill()
    process.communicate()


def test_a_recording_is_followed_and_outlived(show, child):
    for _ in range(2):
        child.step()
    with serving(child.run) as served:
        tab = show(served, "table")
        tab.until_text(".live", "Live")
        tab.until_text(".side .run-state", "running")
        tab.until(lambda: tab.one(".name-cell").count() == 2)
        for _ in range(2):
            last = child.step()
            tab.until_text(".live .num", f"step {last}")
        # Steps and names follow, too.
        tab.until(lambda: tab.one("input[aria-label=Step]").get_attribute("max") == str(last))
        events = [str(last + 1)] * 2
        tab.until(lambda: [row.split("\n")[-1] for row in tab.texts(".grid-row")], lambda now: now == events)
        # A NaN is told of, and a click leads to it.
        assert tab.one(".toast").count() == 0
        bad = child.step("nan")
        tab.until_text(".toast.bad", f"NaN or Inf in net.output, step {bad}")
        # It counts once, however often the server tells of it.
        tab.until_text(".live .num", f"step {child.step()}")
        assert tab.text(".toast.bad span") == f"NaN or Inf in net.output, step {bad}"
        tab.one(".toast .link").click()
        tab.until_at("tensor", name="net.output", step=bad)
        tab.until_text(".tv-title h1", "net.output")
        tab.press("n")
        tab.until_text(".tv-where", "[1, 2]")
        # While it is paused nothing is asked.
        tab.one(".live").click()
        tab.until_text(".live", "Paused")
        asked = -1
        while asked != len(tab.requests):  # What was asked for the tensor comes.
            asked = len(tab.requests)
            tab.page.wait_for_timeout(250)
        later = child.step()
        tab.page.wait_for_timeout(800)  # It would have asked by now.
        assert tab.requests[asked:] == []
        assert f"step {later}" not in tab.text(".live")
        tab.one(".live").click()
        tab.until_text(".live .num", f"step {later}")
        # The program dies, and what it has recorded stays.
        child.send_signal(signal.SIGKILL)
        child.wait()
        tab.until_text(".side .run-state", "crashed")
        tab.until_text(".toasts", "is now")
        tab.until(lambda: tab.one(".live").count() == 0)
        tab.go("tensor", name="net.output", step=later, at="3,3")
        tab.until_text(".tv-step", f"step {later}")
        tab.until_text(".tv-readout", f"{later}")
        tab.go("answer")
        tab.until_text(".answer .chip.big", "unhealthy")


def test_a_server_that_has_gone_is_said(show, child):
    child.step()
    with serving(child.run) as served:
        tab = show(served)
        tab.until_text(".live", "Live")
        tab.allowed.append("ERR_CONNECTION_REFUSED")
        tab.allowed.append("Failed to load resource")
        served.process.send_signal(signal.SIGSTOP)
        served.process.send_signal(signal.SIGCONT)
        child.step()
        tab.until_text(".live .num", "step 1")
        served.process.kill()
        served.process.wait()
        tab.until_text(".live", "No server")
        tab.press("?")
        tab.until_text(".help", "Keys")
        tab.press("Escape")
        # The test has ended it, not the program itself.
        served.process.poll = lambda: None


# ---- one file


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    random = np.random.default_rng(5)
    data = [random.normal(size=(8, 12)).astype(np.float32) for _ in range(2)]
    for name in ("good", "bad"):
        with tenscope.Run(folder, name=name, metadata=False) as run:
            for step, x in enumerate(data):
                run.step(step)
                for module in ("first", "second"):
                    about = {"scope": module, "root": "Net#0", "cls": "Part", "phase": "forward", "step": step}
                    run.record(module, kind="enter", **about)
                    run.record(f"{module}.input.0", x, io="input", **about)
                    x = np.tanh(x)
                    if name == "bad" and module == "second":
                        x[2, 7] += np.float32(3)
                    run.record(f"{module}.output", x, io="output", **about)
                    run.record(module, kind="exit", **about)
    page = folder / "page.html"
    tenscope_cli("view", folder / "good", folder / "bad", "--export", page, check=None)
    said = tenscope_cli("diff", folder / "good", folder / "bad", check=1).stdout.splitlines()[0]
    return page, said, [np.asarray(tenscope.open(folder / name)["second.output", 0]) for name in ("good", "bad")]


def axes(drawn):
    columns = [(int(text), x) for text, x, y in drawn if text.isdigit() and y < 17 and x > 38]
    rows = [(int(text), y) for text, x, y in drawn if text.isdigit() and x <= 38 and y > 17]
    if len(columns) < 2 or len(rows) < 2:
        return None
    return np.polyfit(*zip(*columns, strict=True), 1), np.polyfit(*zip(*rows, strict=True), 1)


def test_an_exported_page_needs_nothing_else(show, exported):
    page, said, (a, b) = exported
    tab = show(page.as_uri())
    assert tab.until_text(".headline", "divergence") == said
    tab.until_text(".top-tools", "exported page")
    tab.until_text(".answer-side", "About this page")
    note = tab.one(".top-tools .run-state").get_attribute("title")
    assert note in tab.text(".answer-side")
    tab.press("Enter")
    tab.until_text(".tv-title h1", "second.output")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)
    # The heat map: the element that differs stands out of the difference, and nothing else does.
    canvas = ".tv-pane[data-of=diff] canvas.tv-canvas"
    (width, left), (height, top) = tab.until(lambda: axes(tab.drawn(canvas)))
    colors = {}
    for row, column in np.ndindex(a.shape):
        color = tab.pixel(canvas, left + (column - 0.35) * width, top + (row - 0.3) * height)
        colors.setdefault(color, []).append((row, column))
    assert sorted(map(len, colors.values())) == [1, a.size - 1]
    assert [places for places in colors.values() if len(places) == 1] == [[tuple(np.argwhere(a != b)[0])]]
    for view in ("timeline", "modules", "table"):
        tab.one(".tab", has_text=view.title()).click()
        tab.until(lambda view=view: tab.view == view)
        tab.until(lambda: tab.one("main.view .skeleton").count() == 0)
    tab.until(lambda: tab.one(".name-cell").count() == 4)
    tab.one(".name-cell", has_text="first.output").click()
    tab.until(lambda: "second" not in tab.text("main.view") or "first.output" in tab.text("main.view"))
    assert [url for url in tab.requests if not url.startswith(("data:", "blob:"))] == [page.as_uri()]


def test_an_exported_page_jumps_and_has_lines_over_steps(show, exported):
    page, _, (a, b) = exported
    tab = show(page.as_uri())
    tab.until_text(".headline", "divergence")
    tab.press("Enter")
    tab.until_text(".tv-title h1", "second.output")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)
    (place,) = np.argwhere(a != b)
    where = f"[{', '.join(map(str, place))}]"
    for key, found in (("w", "largest"), ("d", "1 element is different, in what this page holds"), ("n", "no element")):
        tab.press(key)
        tab.until_text(".tv-found", found)
        tab.until_text(".tv-where", where)
    steps = "[data-section=steps] canvas[aria-label='a statistic over steps']"
    tab.until(lambda: {"0", "1"} <= set(tab.words(steps)))
    tab.one(".tab", has_text="Table").click()
    tab.until(lambda: tab.one(".spark path").count() >= 4)


def test_an_exported_page_inside_a_notebook(browser, exported, tmp_path):
    """As a notebook shows it: in an iframe that has no origin, and no storage."""
    page, said, _ = exported
    around = tmp_path / "notebook.html"
    around.write_text(
        "<!doctype html><meta charset=utf-8><title>notebook</title>"
        f'<iframe sandbox="allow-scripts" width=1200 height=650 srcdoc="{html.escape(page.read_text())}"></iframe>'
    )
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    context.add_init_script(LISTEN)
    tab = context.new_page()
    errors, requests = [], []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(around.as_uri())
    frame = tab.frame_locator("iframe")
    frame.locator(".headline", has_text="divergence").wait_for()
    assert frame.locator(".headline").inner_text() == said
    frame.locator(".card-links a.primary").click()
    frame.locator(".tv-title h1", has_text="second.output").wait_for()
    frame.locator(".tv-pane").nth(2).wait_for()
    frame.locator(".tab", has_text="Table").click()
    frame.locator(".name-cell").nth(3).wait_for()
    frame.locator("button[aria-label='Light or dark']").click()
    assert errors == []
    assert [url for url in requests if not url.startswith(("data:", "blob:", "about:"))] == [around.as_uri()]
    context.close()
