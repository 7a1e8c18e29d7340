"""What a notebook shows: a real one, run by its kernel, rendered as HTML in a browser, light and dark."""

import os
import re

import pytest

nbclient = pytest.importorskip("nbclient", reason="notebooks are run on CPython 3.11 only")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("nbconvert")
pytest.importorskip("torch")

import tenscope  # noqa: E402

EVIL = '<b class=\\"evil\\" onclick=\\"pwned=1\\">x</b><script>pwned=1</script>\\x1b[31m'

CELLS = {
    "setup": f"""
        import numpy as np, torch, tenscope
        evil = "{EVIL}"
        generator = np.random.default_rng(0)
        w = generator.normal(size=(8, 6)).astype(np.float32)""",
    "init": """
        run = tenscope.init("runs", name="good")""",
    "record": """
        for step in range(3):
            tenscope.record(evil, w)
            tenscope.record("loss", 1 / (step + 1))
            tenscope.record("nan", torch.tensor([1.0, float("nan")]))
            tenscope.record("t" * 5000, w)
            tenscope.step()
        tenscope.close()
        with tenscope.Run("runs", name="bad") as other:
            for step in range(3):
                other.record(evil, w + (step == 2))
                other.record("loss", 1 / (step + 1))
                other.record("nan", torch.tensor([1.0, float("nan")]))
                other.record("t" * 5000, w)
                other.step()""",
    "recording": """
        from IPython.display import HTML
        recording = tenscope.open("runs/good")
        HTML(recording._repr_html_())""",
    "recording_page": "recording",
    "event": "recording.event(evil)",
    "events": "recording.event('loss')",
    "diff": "tenscope.diff('runs/good', 'runs/bad')",
    "tensors": "tenscope.diff(w, w + 1e-3 * generator.normal(size=w.shape).astype(np.float32))",
    "values": "tenscope.diff({evil: w, 'n': 1, 'same': w}, {evil: w * np.nan, 'n': 2, 'same': w})",
    "checkpoints": """
        state = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)).state_dict()
        tenscope.save("a.safetensors", dict(state))
        tenscope.save("b.safetensors", {"net." + name: value + (name == "1.bias") for name, value in state.items()})
        tenscope.diff("a.safetensors", "b.safetensors")""",
    "explain": "tenscope.explain(w, w[:, ::-1])",
    "watch": """
        @tenscope.watch("x", "total", show=True)
        def work(n):
            total = 0.0
            for i in range(n):
                x = torch.full((2,), float(i))
                total = float("inf") if i == 2 else total + 0.5
        work(4)""",
    "changes": "work.changes",
    "some": "work.changes['total']",
    "frame": "work.changes.frame()[['name', 'new', 'line']]",
    "many": """
        @tenscope.watch("i")
        def count(n):
            for i in range(n):
                pass
        count(100_000)
        count.changes""",
    "tree": """
        @tenscope.tree(watch=["doubled"])
        def inner(name, values):
            doubled = values * 2
            return doubled
        @tenscope.tree
        def outer(values):
            print("printed")
            return inner(evil, values)
        result = outer(w)""",
    "many_calls": """
        @tenscope.tree
        def often(i): ...
        for i in range(2000): often(i)""",
    "raises": """
        @tenscope.tree
        def fails(): raise ValueError(evil)
        try: fails()
        except ValueError: pass""",
    "warning": """
        import warnings
        warnings.warn("of somebody else")
        warnings.warn(f"of tenscope {evil}", tenscope.RecordingWarning)""",
    "numbers": """
        print(float(recording["loss"]), float(work.changes["total"][-1].new), float(work.changes["x"][0].new[:1])
              if hasattr(work.changes["x"][0].new, "__getitem__") else work.changes["x"][0].new.numpy()[0])""",
    "fork": """
        import os
        child = os.fork()
        if child == 0:
            try: outer(w)
            finally: os._exit(0)
        os.waitpid(child, 0)[1]""",
}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """Its cells' outputs by name, and the notebook."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(re.sub(r"(?m)^ {8}", "", text).strip()) for text in CELLS.values()]
    made = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(made, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}})
    asked = {"IPYTHONDIR": str(folder / "ipython"), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    client.execute(env={**os.environ, **asked, "TENSCOPE_QUIET": "0"})
    return dict(zip(CELLS, (cell.outputs for cell in made.cells), strict=True)), made, folder


def shown(outputs, kind="text/html"):
    (output,) = [output for output in outputs if output.output_type in ("display_data", "execute_result")]
    return output.data[kind]


@pytest.fixture(scope="module", params=["light", "dark"])
def page(request, notebook, browser):
    """The notebook as a page of that theme, 1000 pixels wide."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(theme=request.param)
    exporter.mathjax_url = exporter.require_js_url = ""
    _, made, folder = notebook
    file = folder / f"{request.param}.html"
    file.write_text(exporter.from_notebook_node(made)[0])
    context = browser.new_context(viewport={"width": 1000, "height": 800}, color_scheme=request.param)
    tab = context.new_page()
    tab.route("http*://**", lambda route: route.abort())
    tab.goto(file.as_uri())
    yield tab
    context.close()


def cell(page, name):
    """What stands below a cell."""
    return page.locator(".jp-Cell").nth(list(CELLS).index(name)).locator(".jp-Cell-outputWrapper")


def test_nothing_of_ours_goes_to_stderr(notebook):
    outputs, _, _ = notebook
    for name, of_cell in outputs.items():
        for output in of_cell:
            assert output.output_type != "error", (name, output)
            if output.output_type == "stream" and output.name == "stderr":
                assert name == "fork" or (name == "warning" and "UserWarning: of somebody else" in output.text), output
    assert "recording into runs/good" in shown(outputs["init"])
    assert "next: tenscope ls runs/good" in shown(outputs["record"])
    assert "tenscope warns: of tenscope" in shown(outputs["warning"])
    assert "\x1b" not in shown(outputs["warning"], "text/plain")


def test_results_are_html_and_text(notebook):
    outputs, _, folder = notebook
    for name in ("recording_page", "event", "diff", "tensors", "values", "checkpoints", "explain", "changes", "some"):
        assert shown(outputs[name]), name
        assert shown(outputs[name], "text/plain"), name
        assert "<pre" not in re.sub(r'srcdoc="[^"]*"', "", shown(outputs[name])), name
    with_text = str(tenscope.diff(folder / "runs" / "good", folder / "runs" / "bad"))
    assert shown(outputs["diff"], "text/plain").splitlines()[0] == with_text.splitlines()[0]


def test_live_output_is_bounded_and_complete(notebook):
    outputs, _, _ = notebook
    text = shown(outputs["many_calls"], "text/plain").splitlines()
    assert len(text) == 601 and text[300] == "… 5,400 lines more"
    assert text[1] == "│  i: 0" and text[-2] == "│  i: 1999"
    assert len(shown(outputs["many_calls"])) < 300_000
    lines = shown(outputs["tree"], "text/plain").splitlines()
    assert lines[0].startswith("┌─ outer [In [") and lines[2].startswith("│  ┌─ inner [In [")
    assert lines[-1].startswith("└─ float32[8, 6]") and "interactiveshell" not in "".join(lines)
    assert len(shown(outputs["many"])) < 30_000


def test_numbers(notebook):
    outputs, _, _ = notebook
    (printed,) = outputs["numbers"]
    assert [float(number) for number in printed.text.split()] == [1 / 3, float("inf"), 0.0]
    assert shown(outputs["fork"], "text/plain") == "0"  # the child came to its end


def test_a_run_diff(page):
    below = cell(page, "diff")
    head = below.locator(".tenscope-headline").inner_text()
    assert head.startswith('first divergence: <b class="evil"') and head.endswith("(step 2, call 0)")
    fields = below.locator(".tenscope-fields th").all_inner_texts()
    assert fields[:2] == ["why", "confidence"] and "to see it" in fields
    command = below.locator(".tenscope-fields code").first.inner_text()
    assert command.startswith("tenscope show ") and 'class="evil"' in command
    assert len(below.locator(".tenscope").first.inner_text()) < 3000  # though a name has 5,000 letters
    assert below.locator("details summary").inner_text() == "In the viewer"
    assert not below.locator("iframe").is_visible()
    below.locator("summary").click()
    frame = below.frame_locator("iframe")
    frame.get_by_text("Timeline").first.wait_for(timeout=15_000)
    below.locator("summary").click()


def test_differences_of_values(page):
    below = cell(page, "tensors")
    assert below.locator(".tenscope-headline .tenscope-bad").inner_text().startswith("different: ")
    counts = [int(text) for text in below.locator(".tenscope-bars td:nth-child(2)").all_inner_texts()]
    assert sum(counts) == 48
    widths = below.locator(".tenscope-bars div").evaluate_all("all => all.map((one) => one.offsetWidth)")
    assert max(range(len(counts)), key=counts.__getitem__) == max(range(len(widths)), key=widths.__getitem__)
    heads = cell(page, "values").locator(".tenscope-heading").all_inner_texts()
    assert heads[0] == "n" and heads[1].startswith('<b class="evil"')
    assert cell(page, "checkpoints").locator(".tenscope-table tbody tr").count() >= 1
    assert cell(page, "explain").locator("code").inner_text() == "b = np.flip(a, 1)"


def test_changes(page):
    rows = cell(page, "some").locator("tbody tr")
    cells = [rows.nth(i).locator("td").all_inner_texts() for i in range(rows.count())]
    assert [row[:4] for row in cells] == [
        ["total", "", "0.0", "3"],
        ["total", "0.0", "0.5", "6"],
        ["total", "0.5", "1.0", "6"],
        ["total", "1.0", "inf", "6"],
    ]
    assert cells[1][4].startswith("total = float(")
    assert cell(page, "some").locator("tbody .tenscope-bad").all_inner_texts() == ["inf"]
    assert cell(page, "many").locator("tbody tr").count() == 41
    assert "99,960 more" in cell(page, "many").inner_text()


def test_columns_are_aligned(page):
    """Cells of one column begin, or end, at the same place."""
    tables = page.locator(".tenscope-table, .tenscope-fields").evaluate_all(
        """all => all.map((table) => [...table.rows].map((row) => [...row.cells].map((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          const text = range.getBoundingClientRect(), isRight = getComputedStyle(cell).textAlign === "right";
          return text.width === 0 ? null : Math.round(isRight ? text.right : text.left);
        })))"""
    )
    assert len(tables) > 8
    for rows in tables:
        for column in zip(*rows, strict=True):
            assert len({place for place in column if place is not None}) <= 1, rows


def test_nothing_in_a_name_is_markup(page):
    look = """() => [document.querySelectorAll(".evil").length, typeof pwned,
      document.querySelectorAll(".tenscope script, .tenscope [onclick], .tenscope [src]").length]"""
    assert page.evaluate(look) == [0, "undefined", 0]
    assert '<script>pwned=1</script>\\x1b[31m' in cell(page, "tree").inner_text()


def test_it_can_be_read(page):
    """The contrast of each text with what lies behind it, as WCAG reckons it."""
    look = """() => {
      const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
      const found = [];
      for (const element of document.querySelectorAll(".tenscope, .tenscope *")) {
        if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
        if (element.tagName === "STYLE") continue;
        let opacity = 1, behind = null;
        for (let at = element; at; at = at.parentElement) {
          const style = getComputedStyle(at), color = numbers(style.backgroundColor);
          if (at.closest(".tenscope")) opacity *= Number(style.opacity);
          if (behind === null && (color[3] ?? 1) > 0) behind = color;
        }
        const ink = numbers(getComputedStyle(element).color).slice(0, 3)
          .map((c, i) => c * opacity + behind[i] * (1 - opacity));
        const [low, high] = [light(ink), light(behind)].sort((a, b) => a - b);
        found.push([(high + 0.05) / (low + 0.05), element.className, element.textContent.slice(0, 40)]);
      }
      return found.sort((a, b) => a[0] - b[0]);
    }"""
    found = page.evaluate(look)
    assert len(found) > 500
    assert found[0][0] > 3.9, found[:3]


def test_a_narrow_cell(page):
    page.set_viewport_size({"width": 420, "height": 800})
    look = """() => [...document.querySelectorAll(".tenscope")].filter((one) => one.scrollWidth > one.clientWidth + 1)
      .map((one) => one.textContent.slice(0, 60))"""
    wide = page.evaluate(look)
    page.set_viewport_size({"width": 1000, "height": 800})
    assert wide == []
