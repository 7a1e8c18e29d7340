"""The page of `tenscope view` in a real browser.

A `Tab` is one page: what it asked for, and everything that went wrong in it, is checked when the test ends: errors of
the page and of the console, breaches of the Content-Security-Policy (which is in force in every test), and requests to
anywhere but the server. What a canvas shows as text is read by listening to `fillText`, its colours by reading pixels.

The fixtures `browser` and `show` are in conftest.py. The browser lives as long as a module's tests: while it does, its
event loop runs in this thread, which other modules may not like.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
from viewer_client import start_view

LISTEN = r"""(() => {
  addEventListener("securitypolicyviolation", (event) => {
    console.error(`policy violated: ${event.violatedDirective} by ${event.blockedURI || event.sourceFile}`);
  });
  const of = CanvasRenderingContext2D.prototype;
  const { clearRect, fillText } = of;
  of.clearRect = function (...box) {
    this.canvas.drawn = [];
    return clearRect.apply(this, box);
  };
  of.fillText = function (text, x, y, ...more) {
    const at = new DOMPoint(x, y).matrixTransform(this.getTransform());
    const size = parseFloat(this.font.match(/[\d.]+(?=px)/)) * this.getTransform().a / devicePixelRatio;
    (this.canvas.drawn ??= []).push([String(text), at.x / devicePixelRatio, at.y / devicePixelRatio, size]);
    return fillText.apply(this, [text, x, y, ...more]);
  };
})();"""


class Served:
    """A running `tenscope view`."""

    def __init__(self, *words: object, cwd: object = None):
        self.process, line = start_view(*words, "--no-open", "--json", cwd=cwd)
        said = json.loads(line)
        assert "url" in said, said
        self.url = said["url"]
        self.origin = self.url.partition("/?")[0]
        self.tabs: list[Tab] = []

    def stop(self) -> None:
        # A page must not ask another server that has got the same port.
        for tab in self.tabs:
            if not tab.page.is_closed():
                tab.page.close()
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def serving(*words: object, cwd: object = None):
    served = Served(*words, cwd=cwd)
    try:
        yield served
        assert served.process.poll() is None, served.process.communicate()
    finally:
        served.stop()


def until(look, is_enough=bool, seconds: float = 20):
    """Looks again and again until it is enough, and gives what was seen."""
    end = time.monotonic() + seconds
    while not is_enough(seen := look()):
        assert time.monotonic() < end, f"not within {seconds} s: {seen!r}"
        time.sleep(0.02)
    return seen


def fragment(view: str, **parameters: object) -> str:
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parameters.items() if value is not None)
    return f"#/{view}{'?' + query if query else ''}"


class Tab:
    """One page. `self.page` is Playwright's; `allowed` are words of console errors that a test brings about."""

    def __init__(self, page, origin: str):
        self.page = page
        self.origin = origin
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.allowed: list[str] = []
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        page.on("console", self._hear)
        page.on("request", lambda request: self.requests.append(request.url))

    def _hear(self, message) -> None:
        # Reading pixels back is what tests do, and the page does not.
        if message.type in ("error", "warning") and "willReadFrequently" not in message.text:
            self.errors.append(f"console: {message.text} ({message.location.get('url', '')})")

    def check(self) -> None:
        wrong = [error for error in self.errors if not any(word in error for word in self.allowed)]
        assert not wrong, wrong
        away = [url for url in self.requests if not url.startswith((self.origin + "/", "data:", "blob:"))]
        assert not away, away

    # ---- places

    def go(self, view: str, **parameters: object) -> Tab:
        self.page.goto(f"{self.origin}/{fragment(view, **parameters)}")
        return self

    @property
    def view(self) -> str:
        return self.page.evaluate("location.hash").removeprefix("#/").partition("?")[0] or "answer"

    @property
    def parameters(self) -> dict[str, str]:
        query = self.page.evaluate("location.hash").partition("?")[2]
        return dict(parse_qsl(query, keep_blank_values=True))

    def until(self, look, is_enough=bool, seconds: float = 20):
        """As `until`, while the browser goes on."""
        end = time.monotonic() + seconds
        while not is_enough(seen := look()):
            assert time.monotonic() < end, f"not within {seconds} s: {seen!r}; {self.errors}"
            self.page.wait_for_timeout(25)
        return seen

    def until_at(self, view: str, **parameters: object) -> None:
        """Waits for the address to be there; None: the parameter is absent."""
        wanted = {name: None if value is None else str(value) for name, value in parameters.items()}
        self.until(
            lambda: (self.view, {name: self.parameters.get(name) for name in wanted}), lambda at: at == (view, wanted)
        )

    # ---- what is there

    def ask(self, what: str, /, **parameters: object) -> Any:
        """What the server says, with this page's cookie."""
        response = self.page.context.request.get(f"{self.origin}/api/{what}", params=parameters)
        assert response.ok, response.text()
        return response.json()

    def event(self, name: str, side: str = "a", **where: object) -> int:
        return self.ask("events", side=side, name=name, **where)["events"][0]["id"]

    def one(self, selector: str, **more: Any):
        return self.page.locator(selector, **more)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def table(self, selector: str) -> list[list[str]]:
        """The cells of the rows of a table."""
        look = "(s) => [...document.querySelectorAll(s)].map((row) => [...row.cells].map((cell) => cell.textContent))"
        return self.page.evaluate(look, selector)

    def until_text(self, selector: str, wanted, seconds: float = 20) -> str:
        """Waits until the first one has the text, or its text is enough for `wanted`."""
        is_enough = wanted if callable(wanted) else lambda text: wanted in text
        look = "(s) => document.querySelector(s)?.innerText ?? ''"
        return self.until(lambda: self.page.evaluate(look, selector), is_enough, seconds)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def drawn(self, selector: str) -> list[tuple[str, float, float]]:
        """What a canvas shows as text, and where on it."""
        return [(text, x, y) for text, x, y, _ in self._drawn(selector)]

    def text_sizes(self, selector: str) -> list[float]:
        """How large the texts on a canvas are, in CSS pixels."""
        return [size for *_, size in self._drawn(selector)]

    def _drawn(self, selector: str) -> list[list[Any]]:
        return self.page.evaluate("(s) => document.querySelector(s)?.drawn ?? []", selector)

    def words(self, selector: str) -> list[str]:
        return [text for text, _, _ in self.drawn(selector)]

    def pixel(self, selector: str, x: float, y: float) -> tuple[int, int, int]:
        """The colour of a canvas at a place in CSS pixels."""
        return self.pixels(selector, [(x, y)])[0]

    def pixels(self, selector: str, places: list[tuple[float, float]]) -> list[tuple[int, int, int]]:
        data = self.page.evaluate(
            """([s, places]) => {
              const canvas = document.querySelector(s), g = canvas.getContext("2d"), ratio = devicePixelRatio;
              return places.map(([x, y]) => [...g.getImageData(x * ratio, y * ratio, 1, 1).data]);
            }""",
            [selector, [[float(x), float(y)] for x, y in places]],
        )
        return [tuple(color[:3]) for color in data]

    def clipboard(self) -> str:
        return self.page.evaluate("navigator.clipboard.readText()")

    def overflow(self) -> int:
        """By how much the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def find_from_palette(self, letters: str) -> None:
        self.press("Control+k")
        self.one(".palette-input").fill(letters)


@pytest.fixture(scope="module")
def browser():
    if sys.version_info[:2] != (3, 11):
        pytest.importorskip("playwright.sync_api", reason="playwright is installed for CPython 3.11 only")
    from playwright import sync_api

    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    program = next((each for each in found if each), None)
    assert program is not None, "chromium is not installed (make setup)"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser):
    """Opens pages: `show(served)`, `show(served, "tensor", event=3)`, `show("file:///...")`; checks them at the end."""
    contexts, tabs = [], []

    def open_tab(served: Served | str, view: str | None = None, *, context=None, options=None, **parameters: object):
        if context is None:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}} | (options or {}))
            context.add_init_script(LISTEN)
            contexts.append(context)
        is_file = isinstance(served, str)
        tab = Tab(context.new_page(), served.rpartition("/")[0] if is_file else served.origin)
        tabs.append(tab)
        if not is_file:
            served.tabs.append(tab)
        place = "" if view is None else fragment(view, **parameters)
        tab.page.goto((served if is_file else served.url) + place)
        return tab

    yield open_tab
    for tab in tabs:
        tab.check()
    for context in contexts:
        context.close()
