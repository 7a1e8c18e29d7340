"""One tensor on the page of `tenscope view`, in a real browser: numpy is the judge of what is shown."""

import re

import numpy as np
import pytest
import tenscope
from browser_page import serving

NAN, POS_INF, NEG_INF = (255, 0, 200), (255, 140, 0), (0, 220, 255)
STEPS = 3


def make_tensors(step):
    """Name: the tensor of the first run, and of the second."""
    random = np.random.default_rng(10 + step)
    cube = random.normal(size=(4, 12, 10)).astype(np.float32)
    cube[np.abs(cube) < 0.01] = 0.5  # All digits of the others have room in a cell.
    other = cube.copy()
    other[0, 3, 4] = np.nextafter(other[0, 3, 4], np.float32(9))
    other[1, 0, 9] += np.float32(1e-3)
    other[2, 11, 0] += np.float32(2 + step)
    other[3, 5, 5] -= np.float32(0.5)
    bad = random.normal(size=(12, 16)).astype(np.float32)
    bad[1, 2] = bad[7, 9] = bad[11, 15] = np.nan
    bad[3, 4] = np.inf
    bad[8, 0] = -np.inf
    large = random.normal(size=(700, 1100)).astype(np.float32)
    larger = large.copy()
    larger[611, 1003] += np.float32(7)
    large[5, 6] = larger[5, 6] = np.nan
    ints = np.array([[2**53 + 1, -(2**63), 2**63 - 1], [0, 7, -1]], np.int64)
    line = random.normal(size=37)
    eight = random.normal(size=(2, 1, 3, 1, 2, 2, 3, 4)).astype(np.float16)
    scalar = np.float32(np.pi) * (step + 1)
    pairs = {
        "cube": (cube, other),
        "bad": (bad, bad),
        "large": (large, larger),
        "ints": (ints, ints + np.array([[1, 0, 0], [0, 0, 5]])),
        "line": (line, np.where(np.arange(37) == 30, line + 1, line)),
        "scalar": (np.float32(scalar), np.nextafter(np.float32(scalar), np.float32(99))),
        "eight": (eight, eight),
        "empty": (np.zeros((0, 5), np.float32),) * 2,
        "lost": (np.full((6, 7), np.nan, np.float32),) * 2,
        "wave": ((line + 1j * line[::-1]).astype(np.complex64),) * 2,
        "flags": (bad > 0, bad > 0.5),
        "thin": (cube[0], other[0]),
    }
    return {name: [np.asarray(each) for each in pair] for name, pair in pairs.items()}


@pytest.fixture(scope="module")
def tensors():
    return [make_tensors(step) for step in range(STEPS)]


@pytest.fixture(scope="module")
def served(tmp_path_factory, tensors):
    folder = tmp_path_factory.mktemp("tensors")
    for side, name in enumerate(("first", "second")):
        with tenscope.Run(folder, name=name, metadata=False) as run:
            for step, pairs in enumerate(tensors):
                run.step(step)
                for what, pair in pairs.items():
                    run.record(what, pair[side], step=step, values="stats" if what == "thin" else "full")
            if side == 0:
                run.record("alone", np.arange(6, dtype=np.float32), step=0)
            else:
                run.record("other", np.float32([[3, 1], [-7, 2]]), step=0)
            run.record("reshaped", np.zeros((2, 3 + side), np.float32), step=0)
    with serving(folder / "first", folder / "second") as running:
        yield running


def open_tensor(show, served, name, step=0, **parameters):
    tab = show(served, "tensor", name=name, step=step, **parameters)
    tab.until_text(".tv-title h1", name)
    return tab


def index_text(index):
    return f"[{', '.join(map(str, index))}]"


def geometry(tab, of="a"):
    """Where the elements of a pane stand: (x of column 0, width), (y of row 0, height), read off the axes."""
    drawn = tab.drawn(f".tv-pane[data-of={of}] canvas.tv-canvas")
    columns = [(int(text), x) for text, x, y in drawn if text.isdigit() and y < 17 and x > 38]
    rows = [(int(text), y) for text, x, y in drawn if text.isdigit() and x <= 38 and y > 17]
    if len(columns) < 2 or len(rows) < 2:
        return None
    (width, left), (height, top) = np.polyfit(*zip(*columns, strict=True), 1), np.polyfit(*zip(*rows, strict=True), 1)
    return (left, width), (top, height)


def cells(tab, of="a"):
    """The digits in the cells of a pane by the row and column that its axes name."""
    drawn = tab.drawn(f".tv-pane[data-of={of}] canvas.tv-canvas")
    columns = {x: int(text) for text, x, y in drawn if y < 17 and x > 38 and text.isdigit()}
    rows = {y: int(text) for text, x, y in drawn if x <= 38 and y > 17 and text.isdigit()}
    found = {}
    for text, x, y in drawn:
        if x <= 38 or y <= 17 or not columns or not rows:
            continue
        column = min(columns, key=lambda at: abs(at - x))
        row = min(rows, key=lambda at: abs(at - y))
        if abs(column - x) < 8 and abs(row - y) < 8:
            found[rows[row], columns[column]] = text
    return found


def shows(want, least=12):
    """Whether cells show the numbers of an array by row and column, every digit of them."""

    def is_enough(found):
        values = {"NaN": np.nan, "+Inf": np.inf, "-Inf": -np.inf, "nan": np.nan, "inf": np.inf, "-inf": -np.inf}
        for (row, column), text in found.items():
            if row >= want.shape[0] or column >= want.shape[1]:
                return False
            value = want.dtype.type(values.get(text, text))
            if not np.array_equal(value, want[row, column], equal_nan=True):
                return False
        return len(found) >= min(least, want.size)

    return is_enough


def readout(tab):
    """What stands below the panes: by title the number and its bits."""
    found = {}
    for value in tab.one(".tv-value").all():
        title, number, bits = value.locator("> span").all_inner_texts()
        found[title] = (number, bits)
    return found


def ulps(a, b):
    """How many numbers of the type lie between two."""
    bits = np.dtype(f"i{a.dtype.itemsize}")

    def place(x):
        word = int(np.asarray(x).view(bits))
        return word if word >= 0 else int(np.iinfo(bits).min) - word

    return abs(place(b) - place(a))


def bits_of(x):
    return "0x" + np.asarray(x).tobytes()[::-1].hex()


# ---- numbers


def test_statistics(show, served, tensors):
    tab = show(served)
    for name, step in (("cube", 1), ("bad", 2), ("ints", 0), ("thin", 1), ("large", 0)):
        tab.go("tensor", name=name, step=step)
        tab.until_text(".tv-title h1", name)
        tab.until(lambda: tab.one(".tv-stats tbody tr").count() > 5)
        rows = {}
        for row in tab.one(".tv-stats:not(.tv-difference) tbody tr").all():
            rows[row.locator("th").inner_text()] = [cell.get_attribute("title") for cell in row.locator("td").all()[:2]]
        for side, array in enumerate(tensors[step][name]):
            check_statistics({title: float(values[side]) for title, values in rows.items()}, array)
        text = tab.text(".tv-facts")
        assert array.dtype.name in text and index_text(array.shape) in text
    tab.go("tensor", name="cube", step=1)
    tab.until_text(".tv-title h1", "cube")
    a, b = (each.astype(np.float64) for each in tensors[1]["cube"])
    compared = dict(tab.until(lambda: tab.table(".tv-difference tr")))
    assert float(compared["max |b − a|"]) == pytest.approx(np.abs(b - a).max(), rel=1e-4)
    assert float(compared["relative L2"]) == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a), rel=1e-4)
    cosine = (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)
    assert float(compared["cosine"]) == pytest.approx(cosine, rel=1e-6)


def check_statistics(shown, array):
    wide = array[np.isfinite(array)].astype(np.float64)
    want = {
        "elements": array.size,
        "min": wide.min(),
        "max": wide.max(),
        "mean": wide.mean(),
        "std": wide.std(),
        "L2 norm": np.sqrt((wide**2).sum()),
        "max |x|": np.abs(wide).max(),
        "zero": (array == 0).sum(),
        "NaN": np.isnan(array).sum(),
    }
    if np.isinf(array).any():
        want |= {"+Inf": np.isposinf(array).sum(), "−Inf": np.isneginf(array).sum()}
    assert shown == pytest.approx({title: float(value) for title, value in want.items()}, rel=1e-9, abs=1e-12)


def test_an_element_to_its_bits(show, served, tensors):
    tab = show(served)
    for name, index in (
        ("cube", (0, 3, 4)),
        ("cube", (2, 11, 0)),
        ("cube", (1, 1, 1)),
        ("ints", (0, 0)),
        ("ints", (0, 2)),
        ("line", (30,)),
    ):
        a, b = (array[index] for array in tensors[0][name])
        tab.go("tensor", name=name, step=0, at=",".join(map(str, index)), panes="a,b,diff,rel")
        tab.until_text(".tv-title h1", name)
        tab.until_text(".tv-where", index_text(index))
        found = tab.until(lambda: readout(tab), lambda now, a=a: now.get("A", ("", ""))[1] == bits_of(a))
        assert a.dtype.type(found["A"][0]) == a
        assert b.dtype.type(found["B"][0]) == b and found["B"][1] == bits_of(b)
        if a.dtype.kind == "i":
            assert int(found["B − A"][0].lstrip("+")) == int(b) - int(a)
            assert found["ULP"][0] == "–"
            continue
        difference = float(b) - float(a)
        assert float(found["B − A"][0].split(" ")[0]) == pytest.approx(difference, rel=1e-5)
        assert float(found["relative"][0]) == pytest.approx(abs(difference / float(a)), rel=1e-5)
        count = found["ULP"][0].replace(",", "")
        assert int(count) == ulps(a, b) if "e" not in count else float(count) == pytest.approx(ulps(a, b), rel=1e-3)


def test_there_are_no_ulps_between_integers(show, served):
    tab = open_tensor(show, served, "ints", panes="ulp")
    tab.allowed.append("400")
    tab.until_text(".tv-pane[data-of=ulp] .tv-pane-problem", "floating-point")


def test_an_element_under_the_pointer_and_a_click(show, served, tensors):
    a, b = tensors[0]["cube"]
    tab = open_tensor(show, served, "cube", slice="2,:,:")
    (left, width), (top, height) = tab.until(lambda: geometry(tab, "b"))
    box = tab.one(".tv-pane[data-of=b] canvas.tv-overlay").bounding_box()

    def place(row, column):
        return box["x"] + left + column * width, box["y"] + top + row * height

    tab.page.mouse.move(*place(4, 7))
    tab.until_text(".tv-where", "[2, 4, 7]")
    found = tab.until(lambda: readout(tab), lambda now: now["A"][1].startswith("0x"))
    assert np.float32(found["A"][0]) == a[2, 4, 7] and np.float32(found["B"][0]) == b[2, 4, 7]
    assert "at" not in tab.parameters
    # A click pins it: it stays when the pointer leaves, and it is in the address.
    tab.page.mouse.click(*place(11, 0))
    tab.page.mouse.move(5, 5)
    tab.until_at("tensor", at="2,11,0", slice="2,:,:")
    tab.until_text(".tv-where", "[2, 11, 0]")
    tab.until(lambda: np.float32(readout(tab)["B"][0] or 0) == b[2, 11, 0])
    # Arrows move it.
    tab.press("ArrowUp", "ArrowRight", "ArrowRight")
    tab.until_text(".tv-where", "[2, 10, 2]")
    tab.until(lambda: readout(tab)["A"][1] == bits_of(a[2, 10, 2]))
    tab.press("Escape")
    tab.until_text(".tv-where", "point at an element")
    tab.until_at("tensor", at=None)


def test_jumps(show, served, tensors):
    a, b = tensors[0]["cube"]
    tab = open_tensor(show, served, "cube")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)

    def lands(key, index, said=None):
        tab.press(key)
        tab.until_text(".tv-where", index_text(index))
        if said:
            tab.until_text(".tv-found", said)

    worst = np.unravel_index(np.abs(b - a).argmax(), a.shape)
    lands("w", worst, "the largest")
    tab.until_at("tensor", at=",".join(map(str, worst)))
    lands("l", np.unravel_index(np.abs(a).argmax(), a.shape))
    tab.press("Escape")
    tab.until_at("tensor", at=None)
    differing = [tuple(index) for index in np.argwhere(a != b)]
    for index in [*differing, differing[0]]:
        lands("d", index, f"{len(differing)} elements")
        assert tab.one("input[aria-label='slice, as --slice takes it']").input_value() == f"{index[0]},:,:"
    lands("Shift+D", differing[-1])
    lands("Shift+D", differing[-2])
    # Beyond a tolerance that is chosen: the marks, the count, the jumps.
    tab.press("Escape")
    tab.one(".tv-tolerance button").click()
    for name, value in (("rtol", "0"), ("atol", "0.01")):
        tab.one(f"input[aria-label={name}]").fill(value)
        tab.one(f"input[aria-label={name}]").press("Enter")
    tab.until_at("tensor", rtol="0", atol="0.01", at=None)
    beyond = [tuple(index) for index in np.argwhere(np.abs(b - a) > 0.01)]
    tab.until_text(".tv-count", f"{len(beyond)} of {a.size} beyond")
    tab.page.evaluate("document.activeElement.blur()")
    for index in [*beyond, beyond[0]]:
        lands("m", index)
    lands("Shift+M", beyond[-1])


def test_every_nan_and_infinity_in_turn(show, served, tensors):
    bad, _ = tensors[0]["bad"]
    places = [tuple(index) for index in np.argwhere(~np.isfinite(bad))]
    tab = open_tensor(show, served, "bad")
    signs = ["NaN 3", "+Inf 1", "−Inf 1"]  # a pane has them when its picture has arrived
    tab.until(lambda: tab.texts(".tv-pane[data-of=a] .tv-signs .tv-chip"), lambda found: found == signs)
    for index in [*places, places[0]]:
        tab.press("n")
        tab.until_text(".tv-where", index_text(index))
    tab.until_text(".tv-found", f"{len(places)} elements")
    tab.until_at("tensor", at=",".join(map(str, places[0])))
    tab.press("Shift+N")
    tab.until_text(".tv-where", index_text(places[-1]))
    # Each has a colour of its own, and no other cell has it.
    tab.press("Escape")
    tab.page.mouse.move(5, 5)
    for of in ("a", "b"):
        (left, width), (top, height) = tab.until(lambda of=of: geometry(tab, of))
        canvas = f".tv-pane[data-of={of}] canvas.tv-canvas"
        cells_of_bad = list(np.ndindex(bad.shape))
        middles = [(left + column * width, top + row * height) for row, column in cells_of_bad]
        pixels = dict(zip(cells_of_bad, tab.pixels(canvas, middles), strict=True))
        for index, color in pixels.items():
            value = bad[index]
            want = NAN if np.isnan(value) else POS_INF if value == np.inf else NEG_INF if value == -np.inf else None
            assert color == want if want else color not in (NAN, POS_INF, NEG_INF), index
        # Red above zero, blue below: the two farthest from zero show it.
        finite = np.where(np.isfinite(bad), bad, 0)
        high, low = (np.unravel_index(each, bad.shape) for each in (finite.argmax(), finite.argmin()))
        assert pixels[high][0] > pixels[high][2] and pixels[low][0] < pixels[low][2]


# ---- slices


def test_numbers_in_cells_follow_the_slice(show, served, tensors):
    a, b = tensors[0]["cube"]
    tab = open_tensor(show, served, "cube", panes="a,b")
    tab.until(lambda: tab.one(".tv-pane").count() == 2)
    tab.press("z")
    tab.until(lambda: "zoom" in tab.parameters)
    tab.until(lambda: cells(tab, "a"), shows(a[0]))
    tab.until(lambda: cells(tab, "b"), shows(b[0]))
    tab.press("0")
    tab.until_at("tensor", zoom=None)
    # Another index of the first axis.
    tab.one("input[type=number][aria-label='index of axis 0']").fill("2")
    tab.one("input[type=number][aria-label='index of axis 0']").press("Enter")
    tab.until_at("tensor", slice="2,:,:")
    tab.page.evaluate("document.activeElement.blur()")
    tab.press("z")
    tab.until(lambda: cells(tab, "a"), shows(a[2]))
    tab.until(lambda: cells(tab, "b"), shows(b[2]))
    # Exchanged rows and columns.
    tab.press("t")
    tab.until_at("tensor", slice="2,:,:", t="1")
    tab.until(lambda: cells(tab, "b"), shows(b[2].T))
    tab.press("t")
    tab.until_at("tensor", t=None)
    # The first axis as rows: what had been rows takes an index.
    tab.one("select[aria-label='axis 0']").select_option("rows")
    tab.until_at("tensor", slice=":,0,:")
    tab.page.evaluate("document.activeElement.blur()")
    tab.press("z")
    tab.until(lambda: cells(tab, "a"), shows(a[:, 0, :]))
    # As --slice has it: labels count as the tensor does.
    tab.one("input[aria-label='slice, as --slice takes it']").fill("3,::-2,1:9:3")
    tab.one("input[aria-label='slice, as --slice takes it']").press("Enter")
    tab.until_at("tensor", slice="3,::-2,1::3")
    tab.page.evaluate("document.activeElement.blur()")
    tab.press("z")
    found = tab.until(lambda: cells(tab, "a"), lambda now: shows(a[3])(now) and len(now) == 18)
    assert {row for row, _ in found} == {11, 9, 7, 5, 3, 1} and {column for _, column in found} == {1, 4, 7}
    # Folded.
    tab.press("f")
    tab.until_at("tensor", fold="1")
    tab.press("0", "z")
    tab.until(lambda: cells(tab, "a"), shows(a.reshape(-1, 10)))
    tab.press("f")
    tab.until_at("tensor", fold=None)
    # What is wrong is said, and changes nothing.
    box = tab.one("input[aria-label='slice, as --slice takes it']")
    for wrong, said in (("9,:,:", "outside axis 0"), (":,:,:", "two axes"), ("x", "no number"), ("0,0,0,0", "4 parts")):
        box.fill(wrong)
        box.press("Enter")
        tab.until_text(".tv-slice-text .tv-problem", said)
    tab.until_at("tensor", slice="3,::-2,1::3")


def test_panes_and_blinking(show, served):
    tab = open_tensor(show, served, "cube")
    panes = lambda: [pane.get_attribute("data-of") for pane in tab.one(".tv-pane").all()]  # noqa: E731
    tab.until(panes, lambda now: now == ["a", "b", "diff"])
    tab.press("4", "5")
    tab.until(panes, lambda now: now == ["a", "b", "diff", "rel", "ulp"])
    tab.until_at("tensor", panes="a,b,diff,rel,ulp")
    tab.press("1", "2", "3", "5")
    tab.until(panes, lambda now: now == ["rel"])
    tab.press("4")  # The last one stays.
    tab.page.wait_for_timeout(50)
    assert panes() == ["rel"]
    tab.press("b")
    tab.until_at("tensor", blink="1")
    seen = set()
    tab.until(lambda: seen.update(panes()) or seen, lambda now: {"a", "b"} <= now)
    assert tab.one(".tv-pane").count() == 1
    tab.press("b")
    tab.until(panes, lambda now: now == ["rel"])


def test_step_by_step(show, served, tensors):
    tab = open_tensor(show, served, "cube", at="2,11,0", slice="2,:,:")
    for key, step in (("]", 1), ("]", 2), ("[", 1), (".", 2), (",", 1), ("[", 0)):
        tab.press(key)
        tab.until_at("tensor", step=step, at="2,11,0", slice="2,:,:")
        tab.until_text(".tv-step", f"step {step}")
        a, b = (array[2, 11, 0] for array in tensors[step]["cube"])
        tab.until(lambda a=a, b=b: [readout(tab)[of][1] for of in "AB"] == [bits_of(a), bits_of(b)])
    tab.press("[")
    tab.until_text(".tv-found", "the first step")
    assert tab.one("button[aria-label='the step before']").is_disabled()
    tab.press("End")
    tab.until_at("tensor", step=2)
    tab.press("]")
    tab.until_text(".tv-found", "the last step")
    tab.one("input[aria-label='Step number']").fill("1")
    tab.one("input[aria-label='Step number']").press("Enter")
    tab.until_at("tensor", step=1)
    tab.page.evaluate("document.activeElement.blur()")
    # All steps are played, one after the other.
    tab.press("Home")
    tab.until_at("tensor", step=0)
    tab.press("Space")
    tab.until_at("tensor", step=2)


# ---- unusual tensors


def test_statistics_only(show, served, tensors):
    tab = open_tensor(show, served, "thin", step=1)
    assert tab.until_text(".tv-none", "not kept")
    assert tab.one(".tv-pane").count() == 0
    a, _ = tensors[1]["thin"]
    row = tab.one(".tv-stats tr", has_text="max |x|").first
    assert float(row.locator("td").first.get_attribute("title")) == pytest.approx(float(np.abs(a).max()))
    tab.press("w", "n", "l", "d", "t", "z", "1", "b")  # There is nothing to find, and nothing breaks.
    tab.page.wait_for_timeout(100)
    assert "not kept" in tab.text(".tv-none")


def test_odd_shapes(show, served, tensors):
    tab = open_tensor(show, served, "scalar")
    tab.until_text(".tv-where", "scalar")
    a, b = (array[()] for array in tensors[0]["scalar"])
    tab.until(lambda: [readout(tab)[of][1] for of in "AB"] == [bits_of(a), bits_of(b)])
    assert readout(tab)["ULP"][0] == "1"
    tab.press("w", "z", "t", "ArrowUp")

    tab.go("tensor", name="empty", step=0)
    tab.until_text(".tv-none", "no elements")
    assert "[0, 5]" in tab.text(".tv-none")

    tab.go("tensor", name="line", step=0)
    tab.until_text(".tv-title h1", "line")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)
    tab.press("w")
    tab.until_text(".tv-where", "[30]")
    a, b = (array[30] for array in tensors[0]["line"])
    tab.until(lambda: [readout(tab)[of][1] for of in "AB"] == [bits_of(a), bits_of(b)])

    eight, _ = tensors[0]["eight"]
    tab.go("tensor", name="eight", step=0)
    tab.until_text(".tv-title h1", "eight")
    assert tab.one(".tv-axis").count() == 8
    tab.one("select[aria-label='axis 2']").select_option("rows")
    tab.until_at("tensor", slice="0,0,:,0,0,0,0,:")
    tab.page.evaluate("document.activeElement.blur()")
    tab.press("z")
    tab.until(lambda: cells(tab), shows(eight[0, 0, :, 0, 0, 0, 0, :], least=6))
    tab.press("l")
    worst = np.unravel_index(np.abs(eight).argmax(), eight.shape)
    tab.until_text(".tv-where", index_text(worst))
    tab.press("f", "0", "z")
    tab.until(lambda: cells(tab), shows(eight.reshape(-1, 4)))

    tab.go("tensor", name="wave", step=0, at="3")
    tab.until_text(".tv-title h1", "wave")
    wave, _ = tensors[0]["wave"]
    text = tab.until(lambda: readout(tab)["A"][0], lambda text: "j" in text)
    assert np.complex64(complex(text.strip("()"))) == wave[3]

    flags, others = tensors[0]["flags"]
    tab.go("tensor", name="flags", step=0)
    tab.until_text(".tv-title h1", "flags")
    tab.press("d")
    tab.until_text(".tv-found", f"{(flags != others).sum()} elements")
    tab.until_text(".tv-where", index_text(np.argwhere(flags != others)[0]))


def test_nothing_but_nan(show, served):
    tab = open_tensor(show, served, "lost")
    tab.until(lambda: tab.one(".tv-pane").count() == 3)
    tab.until(lambda: tab.texts(".tv-pane[data-of=a] .tv-signs .tv-chip"), lambda now: now == ["NaN 42"])
    (left, width), (top, height) = tab.until(lambda: geometry(tab, "a"))
    canvas = ".tv-pane[data-of=a] canvas.tv-canvas"
    # Beside the middle, where digits may stand.
    for row, column in ((0, 0), (3, 2), (5, 6)):
        assert tab.pixel(canvas, left + (column - 0.35) * width, top + (row - 0.3) * height) == NAN
    tab.press("l")
    tab.until_text(".tv-found", "no such element")
    tab.press("w", "m", "d", "s", "n")
    tab.until_text(".tv-where", "[0, 0]")
    assert "NaN" in readout(tab)["A"][0] or readout(tab)["A"][0] == "nan"


def test_a_large_one_is_reduced_and_says_so(show, served, tensors):
    a, b = tensors[0]["large"]
    tab = open_tensor(show, served, "large")
    tab.until_text(".tv-reduced", "reduced")
    tab.until(lambda: tab.texts(".tv-pane[data-of=a] .tv-signs .tv-chip") == ["NaN 1"])
    tab.press("w")
    tab.until_text(".tv-where", "[611, 1003]")
    tab.press("1", "2", "z")
    tab.until(lambda: cells(tab, "diff"), shows(b - a))
    found = cells(tab, "diff")
    assert np.float32(found[611, 1003]) == (b - a)[611, 1003] and len(set(found.values())) == 2
    assert tab.one(".tv-reduced").count() == 0
    # Every cell of the overview is the one of its block that is farthest from zero: the NaN is seen from afar.
    tab.press("0", "Escape", "1", "3")
    (left, width), (top, height) = tab.until(lambda: geometry(tab, "a"))
    tab.until(lambda: tab.pixel(".tv-pane[data-of=a] canvas.tv-canvas", left + 6 * width, top + 5 * height) == NAN)


def test_without_a_partner(show, served):
    tab = open_tensor(show, served, "alone")
    tab.until_text(".tv-facts", "only in A")
    assert [pane.get_attribute("data-of") for pane in tab.one(".tv-pane").all()] == ["a"]
    tab.press("w")
    tab.until_text(".tv-found", "nothing to compare")
    tab.go("tensor", name="other", side="b", step=0)
    tab.until_text(".tv-title h1", "other")
    tab.until_text(".tv-facts", "only in B")
    tab.press("l")
    tab.until_text(".tv-where", "[1, 0]")
    tab.until(lambda: readout(tab).get("B", ("", ""))[1] == bits_of(np.float32(-7)))
    tab.go("tensor", name="reshaped", step=0)
    tab.until_text(".tv-title h1", "reshaped")
    tab.one(".tv-facts a.chip", has_text="another shape").click()
    tab.until_text(".tv-facts", "[2, 4]")
    # What is not there is said.
    tab.allowed.append("404")
    tab.go("tensor", name="no.such.name", step=0)
    tab.until(lambda: re.search("no.such.name|Nothing of the name", tab.text("main.view")))


def test_ranks_and_calls(show, tmp_path):
    """Two ranks side by side, and a module that is called twice in a step."""
    for rank in range(2):
        with tenscope.Run(tmp_path, name="both", rank=rank, world_size=2, join=rank > 0, metadata=False) as run:
            for step in range(2):
                run.step(step)
                for call in range(2):
                    value = np.full((3, 5), 100 * rank + 10 * step + call, np.float32)
                    run.record("x", value, step=step, call=call)
    with serving(tmp_path / "both") as running:
        tab = open_tensor(show, running, "x", at="1,1")

        def shows_value(rank, step, call):
            tab.until_at("tensor", rank=rank, step=step, call=call)
            tab.until(lambda: readout(tab)["A"][1] == bits_of(np.float32(100 * rank + 10 * step + call)))

        shows_value(0, 0, 0)
        tab.until(lambda: [text.split()[:2] for text in tab.texts(".tv-rank")] == [["rank", "0"], ["rank", "1"]])
        tab.one(".tv-rank").nth(1).click()
        shows_value(1, 0, 0)
        tab.one(".picker", has_text="call").locator("select").select_option("1")
        shows_value(1, 0, 1)
        tab.page.evaluate("document.activeElement.blur()")
        tab.press("]")
        shows_value(1, 1, 1)
        tab.one(".picker", has_text="rank").locator("select").select_option("0")
        shows_value(0, 1, 1)
        # The other call of the step, among what belongs to it.
        tab.one(".tv-related a", has_text="call 0").click()
        tab.until_at("tensor", rank=0, step=1, call=0)
