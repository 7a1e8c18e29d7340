"""Every key of the page of `tenscope view` does what `?` says of it, and every link leads somewhere."""

import numpy as np
import pytest
import tenscope
from browser_page import serving
from recorded_network import record_watched

STEPS = 4


def record_two_branches(folder, name, is_wrong=False):
    """A network of two branches; `is_wrong`: both give something else from step 1 on, each by itself."""
    random = np.random.default_rng(5)
    with tenscope.Run(folder, name=name, metadata=False) as run:
        for step in range(STEPS):
            run.step(step)

            def of(module, what, value=None, step=step, **more):
                values = {} if value is None else {"value": value}
                where = {"scope": module, "root": "Net#0", "cls": "Part" if module else "Net"}
                run.record(what, **values, **where, step=step, call=step, phase="forward", **more)

            x = random.normal(size=(3, 8, 6)).astype(np.float32)
            of("", "Net", kind="enter")
            of("", "input.0", x, io="input")
            for module in ("left", "right"):
                of(module, module, kind="enter")
                of(module, f"{module}.input.0", x, io="input")
                y = np.tanh(x)
                if is_wrong and step >= 1:
                    y[2, 3, 4] += np.float32(step)
                    y[0, 1, 1] = np.nan
                    y[1, 7, 0] = np.inf
                of(module, f"{module}.output", y, io="output")
                of(module, module, kind="exit")
            of("", "output", y, io="output")
            of("", "Net", kind="exit")
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "runs"
    record_two_branches(folder, "good")
    record_two_branches(folder, "bad", is_wrong=True)
    return folder


@pytest.fixture(scope="module")
def served(folder):
    with serving(folder / "good", folder / "bad") as running:
        yield running


def meanings(tab, title):
    """What the keys of a group of the help are said to do."""
    tab.press("?")
    tab.until_text(".help", title)
    section = tab.one(".help section", has=tab.page.locator("h3", has_text=title))
    found = set(section.locator("dd").all_inner_texts())
    tab.press("Escape")
    tab.until(lambda: tab.one(".help").count() == 0)
    return found


def press(tab, what, keys, wanted):
    """Presses keys, and waits for what is to come of them: parts of the address, or what is seen."""

    def place():
        return {"view": tab.view} | tab.parameters

    def is_done():
        return wanted() if callable(wanted) else wanted.items() <= (dict.fromkeys(wanted) | place()).items()

    for key in keys.split():
        tab.press(key)
    tab.until(lambda: is_done() or (keys, what, hint(tab), place()), lambda seen: seen is True)


def press_all(tab, table):
    for row in table:
        press(tab, *row)
    return {what for what, _, _ in table}


def hint(tab):
    return tab.text(".status-hint")


def test_the_answer(show, served):
    tab = show(served)
    tab.until_text(".headline", "divergence")
    tab.until(lambda: tab.one(".place").count() >= 2)
    tried = press_all(
        tab,
        [
            ("the next place", "n", {"place": "1"}),
            ("the place before", "p", {"place": None}),
            ("open the tensor", "Enter", {"view": "tensor", "step": "1", "name": "left.output"}),
        ],
    )
    tab.page.go_back()
    tab.until_at("answer")
    agreed = tab.ask("answer")["places"][0]["last_agreeing"]
    tried |= press_all(tab, [("the last tensor that agreed", "o", {"view": "tensor", "event": str(agreed["event_a"])})])
    tab.page.go_back()
    tab.until_at("answer")
    assert meanings(tab, "This view") == tried


def test_everywhere(show, served):
    tab = show(served, options={"permissions": ["clipboard-read", "clipboard-write"]})
    tab.until_text(".headline", "divergence")
    theme = tab.page.evaluate("document.documentElement.dataset.theme")
    last = str(STEPS - 1)

    def closed(selector):
        tab.press("Escape")
        return tab.until(lambda: tab.one(selector).count() == 0)

    tried = press_all(
        tab,
        [
            ("show these keys", "?", lambda: tab.one(".help").count() == 1 and closed(".help")),
            ("search everything", "Control+k", lambda: tab.one(".palette").count() == 1 and closed(".palette")),
            ("search everything", "/", lambda: tab.one(".palette").count() == 1 and closed(".palette")),
            ("the last step", "End", {"step": last}),
            ("the step before", "[", {"step": str(STEPS - 2)}),
            ("the step after", "]", {"step": last}),
            ("the first step", "Home", {"step": "0"}),
            ("play the steps, stop", "Space", {"step": last}),
            ("a view, by its number", "2", {"view": "timeline"}),
            ("a view, by its number", "Alt+4", {"view": "table"}),
            ("back", "Backspace", {"view": "timeline"}),
            ("a view, by its number", "1", {"view": "answer"}),
            ("show or hide the module tree", "m", lambda: not tab.one(".sidebar .tree").is_visible()),
            ("show or hide the module tree", "m", lambda: tab.one(".sidebar .tree").is_visible()),
            ("light or dark", "d", lambda: tab.page.evaluate("document.documentElement.dataset.theme") != theme),
            ("copy the link", "c", lambda: tab.clipboard() == tab.page.url),
            (
                "go to the module tree: arrows move, fold and unfold, Enter opens",
                "t ArrowDown ArrowLeft",
                lambda: tab.one(".tree-row").count() == 1,
            ),
            (
                "go to the module tree: arrows move, fold and unfold, Enter opens",
                "ArrowRight ArrowDown Enter",
                {"view": "tensor", "step": last, "name": "left.output"},
            ),
        ],
    )
    tab.go("answer")
    tab.until_text(".headline", "divergence")
    # What a key does to a running recording is seen in test_view_page_odd.
    assert meanings(tab, "Everywhere") == tried | {"pause or follow a running recording"}


def test_the_timeline(show, served):
    tab = show(served, "timeline")
    tab.until(lambda: tab.drawn(".matrix canvas"))
    tried = press_all(
        tab,
        [
            ("the first bad place", "f ArrowUp", lambda: hint(tab).startswith("Net#0 · step 1")),
            ("the module above", "ArrowUp", lambda: hint(tab).startswith("Net#0")),
            ("the module below", "ArrowDown", lambda: hint(tab).startswith("left · step 1 · starts")),
            ("the step after", "ArrowRight", lambda: hint(tab).startswith("left · step 2")),
            ("the step before", "ArrowLeft", lambda: hint(tab).startswith("left · step 1")),
            ("zoom in", "+", {"zoom": "1.50"}),
            ("zoom out", "-", {"zoom": None}),
            ("zoom in", "+ +", {"zoom": "2.25"}),
            ("all steps", "0", {"zoom": None}),
        ],
    )
    assert meanings(tab, "This view") == tried | {"open the tensor"}
    press_all(tab, [("open the tensor", "Enter", {"view": "tensor", "step": "1", "name": "left.output"})])


def test_the_modules(show, served):
    tab = show(served, "modules")
    tab.until(lambda: tab.one(".grid-row").count() == 3)

    def chosen(name):
        return lambda: tab.texts(".grid-row.on .mono") == [name]

    is_open = lambda: tab.one(".grid-row").count() == 3  # noqa: E731
    tab.until(lambda: tab.one(".grid-row.on").count() == 1)  # where it starts
    tried = press_all(
        tab,
        [
            ("the module before", "ArrowUp", chosen("Net#0")),
            ("the next module", "ArrowDown", chosen("left")),
            ("the next module", "j", chosen("right")),
            ("the module before", "k k", chosen("Net#0")),
            ("fold", "ArrowLeft", lambda: tab.one(".grid-row").count() == 1),
            ("unfold", "ArrowRight", is_open),
            ("filter", "f", lambda: tab.page.evaluate("document.activeElement.type") == "search"),
        ],
    )
    tab.page.evaluate("document.activeElement.blur()")
    tried |= press_all(
        tab,
        [
            ("unfold all", "e", is_open),
            ("fold all", "w", is_open),  # leaves have nothing to fold, and the root stays
            ("the tree, or nested boxes", "g", {"as": "graph"}),
            ("the tree, or nested boxes", "g", {"as": None}),
        ],
    )
    assert meanings(tab, "This view") == tried | {"open what it gives"}
    press_all(tab, [("open what it gives", "j Enter", {"view": "tensor", "name": "left.output"})])


def test_the_table(show, served):
    tab = show(served, "table")
    names = tab.until(lambda: tab.texts(".name-cell"))

    def chosen(row):
        return lambda: tab.texts(".grid-row.on .name-cell") == [names[row]]

    tried = press_all(
        tab,
        [
            ("the next row", "j", chosen(0)),
            ("the next row", "ArrowDown", chosen(1)),
            ("the row before", "k", chosen(0)),
            ("twenty rows on", "PageDown", chosen(-1)),
            ("twenty rows back", "PageUp", chosen(0)),
            ("the row before", "j ArrowUp", chosen(0)),
            ("filter", "f", lambda: tab.page.evaluate("document.activeElement.type") == "search"),
        ],
    )
    tab.page.keyboard.type("right")
    tab.until(lambda: tab.texts(".name-cell"), lambda now: now == [name for name in names if "right" in name])
    tried |= press_all(tab, [("drop the filter", "Escape", lambda: tab.texts(".name-cell") == names)])
    assert meanings(tab, "This view") == tried | {"open the tensor"}
    press_all(tab, [("open the tensor", "j Enter", {"view": "tensor", "name": names[0]})])


def test_a_tensor(show, served, folder):
    runs = [tenscope.open(folder / name) for name in ("good", "bad")]
    a, b = (np.asarray(run["left.output", 1]) for run in runs)
    tab = show(served, "tensor", name="left.output", step=1)
    tab.until_text(".tv-title h1", "left.output")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)
    rtol, atol = 1.3e-6, 1e-5
    differs = [",".join(map(str, at)) for at in np.argwhere(~((a == b) | (np.isnan(a) & np.isnan(b)))).tolist()]
    beyond = [",".join(map(str, at)) for at in np.argwhere(~(np.abs(b - a) <= atol + rtol * np.abs(a))).tolist()]
    assert len(differs) == len(beyond) == 3
    largest = ",".join(map(str, np.unravel_index(np.abs(a).argmax(), a.shape)))
    panes = lambda *of: lambda: [one.get_attribute("data-of") for one in tab.one(".tv-pane").all()] == list(of)  # noqa: E731

    def pinned(index):
        return lambda: tab.text(".tv-where").split("]")[0] == "[" + index.replace(",", ", ")

    tried = press_all(
        tab,
        [
            ("Show or hide A", "1", panes("b", "diff")),
            ("Show or hide A", "1", panes("a", "b", "diff")),
            ("Show or hide B", "2", panes("a", "diff")),
            ("Show or hide B − A", "3", panes("a")),
            ("Show or hide relative", "4", panes("a", "rel")),
            ("Show or hide ULP", "5", panes("a", "rel", "ulp")),
            ("A and B in turn", "b", {"blink": "1"}),
            ("A and B in turn", "b", {"blink": None}),
            ("The worst difference", "w", pinned("2,3,4")),
            ("The largest value", "l", pinned(largest)),
            ("Let the pinned element go", "Escape", lambda: "point at" in tab.text(".tv-where")),
            ("The next element that differs", "d", pinned(differs[0])),
            ("The next element that differs", "d", pinned(differs[1])),
            ("The element before that differs", "Shift+D", pinned(differs[0])),
            ("The next element beyond the tolerance", "m", pinned(beyond[1])),
            ("The element before beyond the tolerance", "Shift+M", pinned(beyond[0])),
            ("The worst difference", "w", pinned("2,3,4")),
            ("Move down", "ArrowDown", pinned("2,4,4")),
            ("Move up", "ArrowUp", pinned("2,3,4")),
            ("Move left", "ArrowLeft", pinned("2,3,3")),
            ("Move right", "ArrowRight", pinned("2,3,4")),
            ("Ten down", "Shift+ArrowDown", pinned("2,7,4")),
            ("Ten up", "Shift+ArrowUp", pinned("2,0,4")),
            ("Ten right", "Shift+ArrowRight", pinned("2,0,5")),
            ("Ten left", "Shift+ArrowLeft", pinned("2,0,0")),
            ("Exchange rows and columns", "t", {"t": "1"}),
            ("Exchange rows and columns", "t", {"t": None}),
            ("Fold all axes but the last", "f", {"fold": "1"}),
            ("Fold all axes but the last", "f", {"fold": None}),
            ("Linear or symlog", "s", {"scale": "symlog"}),
            ("Linear or symlog", "s", {"scale": "linear"}),
            ("Show or hide what stands beside", "i", lambda: not tab.one(".tv-inspector").is_visible()),
            ("Show or hide what stands beside", "i", lambda: tab.one(".tv-inspector").is_visible()),
            ("Closer", "+", lambda: "zoom" in tab.parameters),
            ("Farther", "-", lambda: "zoom" not in tab.parameters),
            ("Closer", "=", lambda: "zoom" in tab.parameters),
            ("All of it", "0", {"zoom": None}),
            ("As close as can be", "z", lambda: "zoom" in tab.parameters),
            ("The step after", "]", lambda: "step 2" in tab.text(".tv-step")),
            ("The step after", ".", lambda: "step 3" in tab.text(".tv-step")),
            ("The step before", "[", lambda: "step 2" in tab.text(".tv-step")),
            ("The step before", ",", {"step": "1"}),
        ],
    )
    # The same from the second side, which has what is not finite.
    tab.go("tensor", side="b", event=tab.event("left.output", side="b", step=1))
    tab.until_text(".tv-title h1", "left.output")
    with np.errstate(invalid="ignore"):
        bad = [",".join(map(str, at)) for at in np.argwhere(~np.isfinite(b)).tolist()]
    assert len(bad) == 2 and tab.until_text(".tv-pane[data-of=b] .tv-signs", "NaN")
    assert {"The next NaN or infinity", "The NaN or infinity before"} <= meanings(tab, "This view")
    assert meanings(tab, "This view") == tried | {"The next NaN or infinity", "The NaN or infinity before"}


def test_the_next_nan_of_a_run(show, folder):
    with serving(folder / "bad") as alone:
        tab = show(alone, "tensor", name="right.output", step=2)
        tab.until_text(".tv-title h1", "right.output")
        press_all(
            tab,
            [
                ("The next NaN or infinity", "n", {"at": "0,1,1"}),
                ("The next NaN or infinity", "n", {"at": "1,7,0"}),
                ("The NaN or infinity before", "Shift+N", {"at": "0,1,1"}),
            ],
        )


def test_the_calls(show, served):
    tab = show(served, "calls", step=1)
    tab.until(lambda: tab.drawn(".icicle canvas"))

    def bounds():
        text = tab.parameters.get("range")
        return None if text is None else tuple(map(float, text.split(":")))

    def is_wide(share):
        calls = tab.ask("calls", step=1)["calls"]
        whole = max(call["start"] + call["duration"] for call in calls) - min(call["start"] for call in calls)
        return lambda: bounds() is not None and abs((bounds()[1] - bounds()[0]) / whole - share) < 0.01

    tried = press_all(tab, [("zoom in", "w w", is_wide(1 / 2.25)), ("zoom out", "s", is_wide(1 / 1.5))])
    before = bounds()
    tried |= press_all(tab, [("later", "ArrowRight", lambda: bounds()[0] > before[0])])
    later = bounds()
    tried |= press_all(
        tab,
        [
            ("earlier", "ArrowLeft", lambda: bounds()[0] < later[0]),
            ("the whole step", "0", {"range": None}),
            ("zoom in", "w", is_wide(1 / 1.5)),
            ("the whole step", "Escape", {"range": None}),
        ],
    )
    assert meanings(tab, "This view") == tried | {"open what the chosen call gave"}
    top = min(y for word, _, y in tab.drawn(".icicle canvas") if word.startswith("Net"))
    box = tab.one(".icicle canvas").bounding_box()
    calls = tab.ask("calls", step=1)["calls"]
    whole, left = calls[0], next(call for call in calls if call["name"] == "left")
    middle = (left["start"] + left["duration"] / 2 - whole["start"]) / whole["duration"]
    tab.page.mouse.click(box["x"] + middle * box["width"], box["y"] + top + 22)  # below the network
    tab.until(lambda: "range" in tab.parameters)
    press_all(tab, [("open what the chosen call gave", "Enter", {"view": "tensor"})])
    tab.until_text(".tv-title h1", "left.output")


def test_the_lines(show, tmp_path):
    with serving(record_watched(tmp_path, "watched")) as watched:
        tab = show(watched, "lines")
        tab.until_text(".code", "loss = loss / 2")
        count = tab.ask("changes", scope=tab.ask("variables")["variables"][0]["scope"])["total"]
        assert count > 2

        def at(number):
            return lambda: tab.text(".toolbar .num").startswith(f"change {number} of {count}")

        def at_nan():
            return 'float("nan")' in tab.text(".code-line.on")

        tried = press_all(
            tab,
            [
                ("the first change", "Home", at(1)),
                ("the next change", "ArrowRight", at(2)),
                ("the change before", "ArrowLeft", at(1)),
                ("ten changes on", "Shift+ArrowRight", at(min(11, count))),
                ("the last change", "End", at(count)),
                ("ten changes back", "Shift+ArrowLeft", at(max(1, count - 10))),
                ("the next NaN or Inf", "Home n", at_nan),
                ("the NaN or Inf before", "Home p", at_nan),
            ],
        )
        assert meanings(tab, "This view") == tried


def test_the_list_of_runs(show, folder):
    with serving(folder) as listed:
        tab = show(listed)
        tab.until_text(".toolbar h1", "2 recordings")
        names = tab.texts(".grid-row > .mono:nth-child(2)")

        def chosen(row):
            return lambda: names[row] in tab.text(".grid-row.on")

        tried = press_all(
            tab,
            [
                ("the next run", "j", chosen(0)),
                ("the next run", "ArrowDown", chosen(1)),
                ("the run before", "k", chosen(0)),
                ("the run before", "j ArrowUp", chosen(0)),
                ("choose the run, first A, then B", "x j x", lambda: tab.texts("button.pick") == ["A", "B"]),
                ("exchange A and B", "s", lambda: tab.texts("button.pick") == ["B", "A"]),
                ("filter", "f", lambda: tab.page.evaluate("document.activeElement.type") == "search"),
            ],
        )
        tab.page.evaluate("document.activeElement.blur()")
        assert meanings(tab, "This view") == tried | {"open, or compare"}
        press_all(tab, [("open, or compare", "Enter", lambda: tab.view == "answer" and "against" in tab.parameters)])
        assert {tab.parameters["run"], tab.parameters["against"]} == {"good", "bad"}


def test_every_link_leads_somewhere(show, served):
    tab = show(served)
    tab.until_text(".headline", "divergence")
    links = set()
    for view, ready in (
        ("answer", ".glance-text"),
        ("timeline", ".matrix canvas"),
        ("modules", ".grid-row"),
        ("table", ".grid-row"),
        ("calls", ".icicle canvas"),
        ("tensor?name=left.output&step=1", ".tv-related a"),
    ):
        tab.page.evaluate("(hash) => location.hash = hash", f"#/{view}")
        tab.until(lambda ready=ready: tab.one(ready).count() > 0)
        links |= set(tab.page.evaluate("[...document.querySelectorAll('a[href]')].map((a) => a.getAttribute('href'))"))
    assert len(links) > 15 and all(link.startswith("#/") for link in links), links
    for link in sorted(links):
        tab.page.evaluate("(hash) => location.hash = hash", link)
        wanted, _, query = link.removeprefix("#/").partition("?")
        tab.until(lambda wanted=wanted: tab.view == wanted and tab.one("main.view .skeleton").count() == 0)
        if query and wanted == "tensor":
            tab.until(lambda: (tab.text(".tv-title h1"), tab.parameters.get("name")), lambda seen: seen[0] == seen[1])
        # A tab by itself names no tensor; a click on it opens the one that the answer is about.
        assert tab.one(".failure").count() == 0 or link == "#/tensor", link
    tab.go("answer")
    tab.until_text(".headline", "divergence")
    tab.one(".tab", has_text="Tensor").click()
    tab.until_text(".tv-title h1", "left.output")
