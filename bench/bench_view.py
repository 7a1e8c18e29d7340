"""`tenscope view`: how long the page takes to show something, in a real browser, and what following a recording costs.

Times are the browser's own clock (from the start of the navigation, or from the key press, to the frame in which the
picture is drawn); goals stand beside them. Following is measured in one run with the recorder: how far the viewer is
behind, and what recording costs with it and without it.
"""

import gzip
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import tenscope

TENSCOPE = os.environ.get("TENSCOPE_CLI") or str(Path(sys.executable).with_name("tenscope"))
PAGE = Path(__file__).resolve().parent.parent / "web" / "dist"
SIDE, STEPS = 4096, 6
EVENTS, RATE = 1_000_000, 100_000

# Runs in the page before its own script: the times at which the shell and a drawn heat map are there.
WATCH = """
window.times = {};
const isDrawn = (canvas) => {
  if (!canvas || !canvas.width || !canvas.height) return false;
  const at = canvas.getContext('2d').getImageData(canvas.width >> 1, canvas.height >> 1, 8, 8).data;
  return at.some((byte) => byte !== 0);
};
const look = () => {
  if (!times.shell && document.querySelector('.brand')) times.shell = performance.now();
  if (!times.picture && isDrawn(document.querySelector('.tv-pane canvas.tv-canvas'))) times.picture = performance.now();
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""

# From a key press to the first frame in which the middle of the picture has changed.
STEP = """(key) => new Promise((done) => {
  const canvas = document.querySelector('.tv-pane canvas.tv-canvas');
  const seen = () => {
    const box = canvas.getContext('2d').getImageData(canvas.width >> 1, canvas.height >> 1, 64, 64).data;
    let sum = 0;
    for (let i = 0; i < box.length; ++i) sum = (sum * 31 + box[i]) >>> 0;
    return sum;
  };
  const before = seen(), start = performance.now();
  document.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  const look = () => {
    if (seen() !== before) done(performance.now() - start);
    else if (performance.now() - start > 5000) done(5000);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""

# From a letter typed into the table's filter to the frame in which the count of names has changed.
FILTER = """(text) => new Promise((done) => {
  const input = document.querySelector('main input'), before = document.querySelector('main').innerText;
  const start = performance.now();
  input.value = text;
  input.dispatchEvent(new Event('input', { bubbles: true }));
  const look = () => {
    if (document.querySelector('main').innerText !== before) done(performance.now() - start);
    else if (performance.now() - start > 5000) done(5000);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""

RECORDER = """
import sys, time
import tenscope
rate, count = float(sys.argv[2]), int(sys.argv[3])
with tenscope.Run(sys.argv[1], name="live", metadata=False) as run:
    start, busy, done = time.perf_counter(), 0.0, 0
    print("go", flush=True)
    while done < count:
        begin = time.perf_counter()
        for k in range(1000):
            run.record("value%d" % (k % 50), done + k * 0.5)
        done += 1000
        busy += time.perf_counter() - begin
        if done % 50000 == 0:
            print(done, flush=True)
        time.sleep(max(0.0, start + done / rate - time.perf_counter()))
print("busy", busy, flush=True)
"""


class Viewer:
    def __init__(self, *what):
        self.started = time.perf_counter()
        words = [TENSCOPE, "view", *map(str, what), "--no-open", "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        told = json.loads(self.process.stdout.readline())
        self.url = told["url"]
        self.connection = http.client.HTTPConnection("127.0.0.1", told["port"])
        self.connection.request("GET", f"/?token={told['token']}")
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = answer.getheader("Set-Cookie").split(";")[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def fetch(self, target):
        self.connection.request("GET", target, headers={"Cookie": self.cookie})
        return self.connection.getresponse().read()

    def get(self, target):
        return json.loads(self.fetch(target))

    def memory_mb(self):
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def say(what, value, unit, goal):
    print(f"  {what:<58} {value:>9.4g} {unit:<4}{' goal ' + goal if goal else ''}".rstrip())


def in_the_browser(folder):
    from playwright.sync_api import sync_playwright

    random = np.random.default_rng(0)
    with tenscope.Run(folder, name="large", metadata=False) as run:
        for step in range(STEPS):
            run.step(step)
            run.record("x", random.normal(size=(SIDE, SIDE)).astype(np.float32))
    with tenscope.Run(folder, name="names", metadata=False) as run:
        for i in range(10_000):
            run.record(f"blocks.{i // 100}.part{i % 100}.output", float(i))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        with Viewer(folder / "large") as viewer:
            shells, pictures = [], []
            for _ in range(5):
                page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
                page.goto(viewer.url)  # the cookie
                page.add_init_script(WATCH)
                page.goto(viewer.url.split("?")[0] + "#/tensor?name=x&step=0")
                page.reload()
                for _ in range(40):  # on a busy machine it takes a while
                    page.wait_for_timeout(500)
                    times = page.evaluate("times")
                    if "picture" in times:
                        break
                shells.append(times["shell"])
                pictures.append(times["picture"])
                last = page
                if len(shells) < 5:
                    page.context.close()
            say("the shell is there after", statistics.median(shells), "ms", "< 150")
            say("the first heat map of 4096 x 4096 after", statistics.median(pictures), "ms", "< 400")
            last.wait_for_timeout(500)
            steps = []
            for key in ["."] * (STEPS - 1) + [","] * (STEPS - 1) + ["."] * (STEPS - 1):
                steps.append(last.evaluate(STEP, key))
                last.wait_for_timeout(250)
            steps.sort()
            say("a step further, median", statistics.median(steps), "ms", "")
            say("a step further, 95 %", steps[int(0.95 * len(steps))], "ms", "< 60")
            say("memory of the server beside mapped files", viewer.memory_mb(), "MB", "< 200")
        with Viewer(folder / "names") as viewer:
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            page.goto(viewer.url)
            page.goto(viewer.url.split("?")[0] + "#/table")
            page.wait_for_timeout(1500)
            times = [page.evaluate(FILTER, text) for text in ("part7", "blocks.9*", "out", "5.part5", "part99")]
            say("10,000 names filtered, worst of five", max(times), "ms", "< 50")
        browser.close()


def best_of(times, action):
    """Seconds of the fastest of some tries."""
    tries = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        tries.append(time.perf_counter() - start)
    return min(tries)


def against_numpy(folder):
    """What the page asks for, over HTTP, against the same by NumPy in memory: a ratio above 1 is faster than NumPy."""
    recording = tenscope.open(folder / "large")
    x, y = (np.array(recording["x", step]) for step in (0, 1))
    blocks = (512, SIDE // 512, 512, SIDE // 512)

    def reduced(values):
        cells = values.reshape(blocks)
        return cells.min((1, 3)), cells.max((1, 3)), cells.mean((1, 3)), np.isfinite(cells).all((1, 3))

    def profile(values):
        size, bad = np.linalg.norm(values, axis=1), (~np.isfinite(values)).sum(1)
        return values.min(1), values.max(1), values.mean(1), size, bad

    np.save(folder / "a.npy", x)
    np.save(folder / "b.npy", y)
    with Viewer(folder / "a.npy", folder / "b.npy") as viewer:
        while viewer.get("/api/answer")["state"] == "working":
            time.sleep(0.05)
        for what, target, numpy in [
            ("a tile of 512 x 512", "tile?event=0&of=a&h=512&w=512&scale=0", lambda: reduced(x)),
            ("a tile of the difference", "tile?event=0&of=diff&h=512&w=512&scale=0", lambda: reduced(y - x)),
            ("a histogram", "histogram?event=0&of=a", lambda: np.histogram(x, bins=100)),
            ("a profile along axis 0", "profile?event=0&of=a&axis=0", lambda: profile(x)),
            ("the worst element", "find?event=0&what=worst&count=0", lambda: np.abs(y - x).argmax()),
        ]:
            ratio = best_of(3, numpy) / best_of(5, lambda target=target: viewer.fetch(f"/api/{target}"))
            say(f"4096 x 4096, {what}: times as fast as NumPy", ratio, "", "> 1")


def a_million_events(folder):
    with tenscope.Run(folder, name="long", metadata=False) as run:
        for step in range(EVENTS // 100):
            run.step(step)
            for k in range(100):
                run.record(f"value{k}", step + k * 0.5)
    with Viewer(folder / "long") as viewer:
        viewer.get("/api/session")
        say("1,000,000 events: the page can be used after", time.perf_counter() - viewer.started, "s", "< 3")
        while viewer.get("/api/answer")["state"] == "working":
            time.sleep(0.02)
        say("1,000,000 events: all is looked over after", time.perf_counter() - viewer.started, "s", "")
        say("memory of the server", viewer.memory_mb(), "MB", "< 200")


def record_live(folder, is_followed):
    """Seconds that recording took, and how old the newest event that the viewer knows was: when each answer came, and
    just before the next one came. The page asks twice a second."""
    shutil.rmtree(folder / "live", ignore_errors=True)
    words = [sys.executable, "-c", RECORDER, str(folder), str(RATE), str(EVENTS)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    lines = []
    listener = threading.Thread(target=lambda: lines.extend((time.time(), line.split()) for line in process.stdout))
    listener.start()
    behind, before = [], []
    if is_followed:
        time.sleep(0.3)
        with Viewer(folder / "live") as viewer:
            newest = None
            while listener.is_alive():
                seen = viewer.get("/api/live?revision=0")["sides"][0]["events"]
                now = time.time()
                written = [(at, int(words[0])) for at, words in lines if words[0] != "busy"]
                if newest is not None and seen < EVENTS:
                    before.append(now - newest)
                if written and RATE < seen < EVENTS:
                    at, count = written[-1]
                    newest = at + (seen - count) / RATE
                    behind.append(now - newest)
                time.sleep(0.5)
    listener.join()
    return float(lines[-1][1][1]), behind, before


def main():
    packed = sum(len(gzip.compress((PAGE / name).read_bytes())) for name in ("index.html", "viewer.js", "viewer.css"))
    say("the page, gzipped", packed / 1024, "KB", "< 150")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        in_the_browser(folder)
        against_numpy(folder)
        a_million_events(folder)
        alone, followed, behind, before = [], [], [], []
        for _ in range(3):
            alone.append(record_live(folder, False)[0])
            busy, lags, longest = record_live(folder, True)
            followed.append(busy)
            behind += lags
            before += longest
        for what, lags in (("when an answer comes", behind), ("before the next one comes", before)):
            lags.sort()
            say(f"following {RATE} events/s: behind {what}, 95 %", lags[int(0.95 * len(lags))], "s", "< 1")
        say("recording while followed, as a ratio of alone", min(followed) / min(alone), "", "< 1.1")


if __name__ == "__main__":
    main()
