"""The page of `tenscope view` in a real browser: it opens on the answer, and every view shows what was recorded."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tenscope
from browser_page import serving
from hand_written_run import tenscope as tenscope_cli
from hand_written_run import tenscope_program
from launched import warm_run
from recorded_network import WRONG, read, record_networks

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return record_networks(tmp_path_factory.mktemp("page") / "runs")


@pytest.fixture(scope="module")
def compared(runs):
    with serving(runs / "good", runs / "bad") as served:
        yield served


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
    for name, edit in (("good", "is_causal=True"), ("bad", "is_causal=True, scale=0.1")):
        (folder / f"of_{name}").mkdir()
        for file in ("demo_gpt.py", "demo_bug.py"):
            text = (ROOT / "examples" / file).read_text()
            (folder / f"of_{name}" / file).write_text(text.replace("is_causal=True", edit))
        done = warm_run(folder / f"of_{name}", "--out", str(folder), "--name", name, "demo_bug.py")
        assert done.returncode == 0, done.stderr
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
