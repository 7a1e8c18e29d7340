"""Runs the pages whose code blocks are tested, puts what they print today into them, and makes their pictures again.

    python tools/stories.py                       which blocks print something else than their page says?
    python tools/stories.py --write               ... and puts it there (a … that still fits stays)
    python tools/stories.py --pictures            makes docs/images again (needs Chromium, Graphviz and Pillow)
    python tools/stories.py docs/start.md         of this page alone
"""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import page_blocks  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "docs" / "start.md", *sorted((ROOT / "docs" / "stories").glob("*.md"))]
IMAGES = ROOT / "docs" / "images"

# What `tenscope view` is given, the place in it, the picture and its height; or a command that makes one in @.
PICTURES = {
    "README.md": [
        ("gpt/good gpt/bad", "#/answer", "answer.png", 900),
        ("gpt/good gpt/bad", "#/tensor?name=blocks.0.attn.out.input.0&step=0", "tensor.png", 680),
        "tenscope graph gpt/good --against gpt/bad -o @graph.svg",
    ],
    "port.md": [("runs/torch runs/port", "#/tensor?name=blocks.0.attn.out.input.0", "story-port.png", 640)],
    "nan.md": [("runs/nan", "#/tensor?name=pool.output&step=37", "story-nan.png")],
    "upgrade.md": [("runs/kit-1.4 runs/kit-2.0", "#/answer", "story-upgrade.png")],
    "quantise.md": [("runs/float runs/int4", "#/tensor?name=blocks.2.down.weight", "story-quantise.png", 640)],
}


class Renewed(page_blocks.Page):
    """Remembers what was printed instead of failing: in `parts`, each part of the page as it is and as it should be."""

    def __init__(self, folder):
        super().__init__(folder)
        self.parts = []

    def check(self, command, expected, stdout, stderr, code):
        shown = expected
        try:
            super().check(command, expected, stdout, stderr, code)
        except AssertionError:
            assert code == 0 or (code == 1 and stdout), f"{command} ended with {code}:\n{stdout}{stderr}"
            lines = stdout.strip("\n").splitlines()
            if any(line.startswith("tenscope: ") for line in expected.splitlines()):
                lines += [line for line in stderr.splitlines() if line.startswith("tenscope: ")]
            shown = "".join(f"{line}\n" for line in lines)
        self.parts.append((f"$ {command}\n{expected}", f"$ {command}\n{shown}"))


def renewed(page, folder):
    """The text of the page with what is printed today, run in that folder."""
    if page.name == "README.md":
        shutil.copytree(ROOT / "examples", folder / "examples")
    runner, printed = Renewed(folder), ""
    sys.modules["page"] = runner.module
    with contextlib.chdir(folder):
        for block in page_blocks.blocks(page):
            if block.language in ("python", "sh") and not block.title:
                printed = getattr(runner, block.language)(block.source)
            elif block.language == "text" and not block.title:
                fits = page_blocks.is_printed(block.source, printed)
                shown = block.source if fits else f"{printed.strip()}\n"
                runner.parts.append((f"```text\n{block.source}", f"```text\n{shown}"))
            else:
                runner.run([block])
    text, place = page.read_text(), 0
    for old, new in runner.parts:
        place = text.index(old, place)
        text = text[:place] + new + text[place + len(old) :]
        place += len(new)
        if old != new:
            print(f"{page.name} has:\n{old}\nis printed:\n{new}")
    return text


def record_two_gpts(folder):
    """The demo's GPT with attention written by hand, and again after its scale was changed: both sources are kept."""
    gpt = (ROOT / "examples" / "demo_gpt.py").read_text()
    fused = "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
    by_hand = """\
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        mask = torch.ones(time, time, dtype=torch.bool).triu(1)
        y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
"""
    assert fused in gpt
    main = "train(2, lambda name, tensor: None)\n"
    for name, text in ("good", by_hand), ("bad", by_hand.replace("(WIDTH // HEADS)", "WIDTH")):
        (folder / "gpt.py").write_text(gpt.partition("\nif __name__")[0].replace(fused, text) + main)
        subprocess.run(["tenscope", "run", "--out", "gpt", "--name", name, "gpt.py"], cwd=folder, check=True)


def take_pictures(page, folder):
    if page.name == "README.md":
        record_two_gpts(folder)
    for picture in PICTURES.get(page.name, []):
        if isinstance(picture, str):
            subprocess.run(picture.replace("@", f"{IMAGES}/").split(), cwd=folder, check=True)
        else:
            take_picture(folder, *picture)


def take_picture(folder, words, place, name, height=680):
    from PIL import Image
    from playwright.sync_api import sync_playwright

    view = subprocess.Popen(
        ["tenscope", "view", *words.split(), "--no-open", "--json"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        url = json.loads(view.stdout.readline())["url"]
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            tab = chromium.new_page(viewport={"width": 1180, "height": height}, color_scheme="light")
            tab.goto(url)
            tab.wait_for_load_state("networkidle")
            if place != "#/answer":
                tab.goto(re.sub(r"[?#].*", "", url) + place)
                tab.wait_for_load_state("networkidle")
            tab.wait_for_timeout(700)
            picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
            picture.quantize(256, kmeans=3, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)
    finally:
        view.terminate()
        view.wait()
    print(f"{name}: {(IMAGES / name).stat().st_size / 1024:.0f} KB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=lambda path: Path(path).resolve(), default=PAGES)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    differ = False
    for page in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            text = renewed(page, Path(folder))
            differ |= text != page.read_text()
            if options.write:
                page.write_text(text)
            if options.pictures:
                take_pictures(page, Path(folder))
    return 1 if differ and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
