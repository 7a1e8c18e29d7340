"""The sources of the code that made a run: what is kept, what is said of what is not, and what a diff makes of it."""

import difflib
import linecache
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
import tenscope
from hand_written_run import tenscope as command
from hand_written_run import tenscope_json
from launched import notes, tenscope_run, write

torch = pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn

SCALE = 1.0


def helper(x):
    return x * SCALE


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = Norm(dim)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.fc(self.norm(x))
        return helper(x) + torch.relu(h)


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.blocks = nn.Sequential(Block(dim), Block(dim))

    def forward(self, x):
        return self.blocks(x)
"""
TRAIN = """\
import torch
from model import Net

torch.manual_seed(0)
net = Net()
net(torch.randn(4, 8)).square().mean().backward()
"""
PLAIN = "from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"
OF_BLOCK = ("torch.relu(h)", "torch.relu(h) * 0.5")


def edited(*edits):
    text = MODEL
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def record(folder, name, model, *words):
    write(folder, model, "model.py")
    write(folder, TRAIN, "train.py")
    done = tenscope_run(folder, "--name", name, *words, "train.py")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Recordings of one file that is edited in place between them, and is something else afterwards."""
    folder = tmp_path_factory.mktemp("edited")
    made = {
        "plain": record(folder, "plain", MODEL),
        "block": record(folder, "block", edited(OF_BLOCK, ("self.blocks(x)", "self.blocks(x) + 0"))),
        "eps": record(folder, "eps", edited(("eps=1e-5", "eps=1e-3"))),
        "eps_given": record(folder, "eps_given", edited(("Norm(dim)", "Norm(dim, 1e-3)"))),
        "helper": record(folder, "helper", edited(("SCALE = 1.0", "SCALE = 2.0"))),
        "without": record(folder, "without", edited(OF_BLOCK), "--no-sources"),
    }
    (folder / "model.py").write_text("raise SystemExit\n")
    return made


def first(a, b):
    return tenscope_json("diff", a, b, check=1)["first_divergence"]


def test_the_text_that_ran_is_kept_once(runs):
    run = tenscope.open(runs["plain"])
    assert run.sources["model.py"] == MODEL
    assert run.sources.path("model.py") == str(runs["plain"].parent.parent / "model.py")
    # torch's own classes that were called, and the program; nothing else.
    assert {Path(file).name for file in run.sources} == {"train.py", "model.py", "linear.py", "container.py"}
    linear = next(file for file in run.sources if file.endswith("linear.py"))
    assert run.sources[linear] == Path(torch.nn.modules.linear.__file__).read_text()
    assert len(list((runs["plain"] / "sources").iterdir())) == 4 and run.sources.left_out == {}
    told = notes(run, "source")
    assert [note.meta["lines"] for note in told if note.meta["file"] == "model.py"] == [len(MODEL.splitlines())]
    model = next(note for note in told if note.meta["file"] == "model.py")
    assert (runs["plain"] / "sources" / f"{model.meta['fp']}.py").read_text() == MODEL


def test_lines_of_operations_have_their_source(tmp_path):
    run = tenscope.open(record(tmp_path, "ops", MODEL, "--ops", ":loss"))
    assert any(event.io == "op" and event.site == "train.py:6" for event in run.events(kind="value"))
    assert run.sources["train.py"] == TRAIN


def test_every_module_says_its_file(runs):
    run = tenscope.open(runs["plain"])
    block = next(e for e in run.events(kind="enter") if e.scope == "blocks.0")
    assert block.meta["class_path"] == "model:Block" and block.meta["class_file"] == "model.py"


def test_the_changed_lines_of_the_blamed_class(runs):
    found = first(runs["plain"], runs["block"])
    after = edited(OF_BLOCK, ("self.blocks(x)", "self.blocks(x) + 0"))
    line = (
        MODEL.splitlines().index("    def forward(self, x):", MODEL.splitlines().index("class Block(nn.Module):")) + 1
    )
    assert found["module"] == "blocks.0" and found["site"] == f"model.py:{line}"
    code = found["code"]
    assert code["site_a"] == code["site_b"] == f"model.py:{line}" and code["class_a"] == "model:Block"
    assert (code["source"], code["lines_removed"], code["lines_added"]) == ("differs", 1, 1)
    assert code["elsewhere"] == ["Net"]
    # The same as difflib makes of the whole files, without the other class.
    whole = list(difflib.unified_diff(MODEL.splitlines(), after.splitlines(), "model.py", "model.py", "", "", 2, ""))
    hunk = whole[: whole.index("-        return self.blocks(x)") - 3]
    changed = [text for text in hunk if text[0] in "+-"]
    assert [text for text in found["source_diff"].splitlines() if text[0] in "+-"] == changed
    assert "self.blocks" not in found["source_diff"]
    text = command("diff", runs["plain"], runs["block"], check=1).stdout
    assert "the source of Block differs: 1 line removed, 1 added" in text
    assert "+        return helper(x) + torch.relu(h) * 0.5" in text and "self.blocks" not in text
    assert "these differ, too: Net" in text


def test_a_diff_that_git_applies(runs, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    diff = first(runs["plain"], runs["block"])["source_diff"]
    hunks = diff[diff.index("@@") :].rstrip("\n")
    # The context ends with the class, which git would take for the end of the file.
    patch = f"--- a/model.py\n+++ b/model.py\n{hunks}\n"
    subprocess.run(["git", "apply", "--unidiff-zero", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "model.py").read_text() == edited(OF_BLOCK)


def test_attributes_that_differ_are_named(runs):
    found = first(runs["plain"], runs["eps_given"])
    assert found["module"] == "blocks.0.norm" and found["code"]["source"] == "same"
    assert found["source_diff"] is None
    assert found["code"]["attributes"] == [{"name": "eps", "a": 1e-5, "b": 1e-3}]
    assert found["code"]["elsewhere"] == ["Block"]
    document = tenscope_json("diff", runs["plain"], runs["eps_given"], check=1)
    assert document["attribute_count"] == 2
    assert [(one["module"], one["name"], one["a"], one["b"]) for one in document["attributes"]] == [
        ("blocks.0.norm", "eps", 1e-5, 1e-3),
        ("blocks.1.norm", "eps", 1e-5, 1e-3),
    ]
    text = command("diff", runs["plain"], runs["eps_given"], check=1).stdout
    assert "the source of Norm is the same in both runs" in text
    assert "eps 1e-05 → 0.001" in text and "blocks.1.norm: eps 1e-05 → 0.001" in text


def test_source_and_attribute_may_both_differ(runs):
    found = first(runs["plain"], runs["eps"])
    assert found["module"] == "blocks.0.norm" and found["code"]["source"] == "differs"
    assert "+    def __init__(self, dim, eps=1e-3):" in found["source_diff"]
    assert found["code"]["attributes"] == [{"name": "eps", "a": 1e-5, "b": 1e-3}]


def test_what_stands_outside_of_the_class_is_said_to_differ(runs):
    found = first(runs["plain"], runs["helper"])
    assert found["module"] == "blocks.0" and found["code"]["source"] == "same"
    assert found["code"]["elsewhere"] == ["<module>"] and found["source_diff"] is None
    text = command("diff", runs["plain"], runs["helper"], check=1).stdout
    assert "these differ, too: the module's own lines" in text


def test_without_sources_nothing_is_said_to_be_the_same(runs, tmp_path):
    assert not (runs["without"] / "sources").exists() and not tenscope.open(runs["without"]).sources
    for a, b, which in (("plain", "without", "second"), ("without", "plain", "first")):
        found = first(runs[a], runs[b])
        assert found["module"] == "blocks.0" and found["code"]["source"] == "unknown"
        assert found["code"]["why_unknown"] == f"the {which} run keeps no sources"
    assert "is the same is not known" in command("diff", runs["plain"], runs["without"], check=1).stdout
    # Not even where a run has lost the text.
    shutil.copytree(runs["block"], tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost" / "sources")
    found = first(runs["plain"], tmp_path / "lost")
    assert found["code"]["source"] == "unknown" and "sources" in found["code"]["why_unknown"]


def test_show_and_verify(runs, tmp_path):
    assert command("show", runs["plain"], "--source", "model.py").stdout == MODEL
    assert tenscope_json("show", runs["plain"], "--source", "nn/modules/linear.py")["text"].startswith("# mypy")
    listed = tenscope_json("show", runs["plain"], "--source")["sources"]
    assert {Path(one["file"]).name for one in listed} == {"train.py", "model.py", "linear.py", "container.py"}
    assert "model.py" in command("show", runs["plain"], "--source").stdout
    assert "keeps no source" in command("show", runs["plain"], "--source", "odd.py", check=2).stderr
    assert "keeps no sources" in command("show", runs["without"], "--source").stdout
    assert "needs a name" in command("show", runs["plain"], check=2).stderr
    command("verify", runs["plain"])
    shutil.copytree(runs["plain"], tmp_path / "run")
    kept = next(path for path in (tmp_path / "run" / "sources").iterdir() if path.read_text() == MODEL)
    kept.write_text(MODEL + "\n")
    assert kept.name in command("verify", tmp_path / "run", check=1).stdout
    assert "changed" in command("show", tmp_path / "run", "--source", "model.py", check=2).stderr
    with pytest.raises(tenscope.Error):
        tenscope.open(tmp_path / "run").sources["model.py"]


def test_a_run_is_replaced_and_pushed_with_its_sources(runs, tmp_path):
    pytest.importorskip("fsspec")
    copy = tmp_path / "there"
    command("push", runs["plain"], f"file://{copy}")
    assert tenscope.open(f"file://{copy}").sources["model.py"] == MODEL
    assert command("show", f"file://{copy}", "--source", "model.py").stdout == MODEL
    folder = runs["plain"].parent.parent
    record(folder, "again", MODEL)
    record(folder, "again", edited(OF_BLOCK), "--replace")
    assert tenscope.open(folder / "runs" / "again").sources["model.py"] == edited(OF_BLOCK)


# In this process.


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        yield run


def sources(run):
    return tenscope.open(run.path).sources


def make_module(folder, name, text):
    path = write(folder, text, f"{name}.py")
    old = path.stat()
    os.utime(path, (old.st_atime, 1))  # older than this process
    return path


def imported(folder, name, text, monkeypatch):
    path = make_module(folder, name, text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = __import__(name)
    return module, path


def call(cls, *args):
    model = cls(*args)
    with tenscope.trace(model):
        model(torch.ones(2, 8))


def test_a_base_class_in_another_file(run, tmp_path, monkeypatch):
    base = "from torch import nn\n\nclass Base(nn.Module):\n    def forward(self, x):\n        return x\n"
    imported(tmp_path, "tenscope_base", base, monkeypatch)
    derived = "from tenscope_base import Base\n\nclass Derived(Base):\n    pass\n"
    module, _ = imported(tmp_path, "tenscope_derived", derived, monkeypatch)
    call(module.Derived)
    kept = sources(run)
    assert {Path(file).name: text for file, text in kept.items()} == {
        "tenscope_base.py": base,
        "tenscope_derived.py": derived,
    }
    enter = next(tenscope.open(run.path).events(kind="enter"))
    assert enter.site.rpartition(":")[0].endswith("tenscope_base.py") and enter.meta["class_file"].endswith(
        "derived.py"
    )


def test_a_file_that_changed_since_it_was_imported_is_not_taken_for_it(run, tmp_path, monkeypatch):
    text = PLAIN
    module, path = imported(tmp_path, "tenscope_changing", text, monkeypatch)
    path.write_text(text.replace("return x", "return x + 1"))
    call(module.Net)
    kept = sources(run)
    assert not kept and "changed after" in kept.left_out[str(path)]


def test_a_file_written_by_the_program_itself_is_kept(run, tmp_path, monkeypatch):
    text = PLAIN
    path = write(tmp_path, text, "tenscope_written.py")  # newer than this process, and what runs
    os.utime(path, (2**31, 2**31))
    monkeypatch.syspath_prepend(str(tmp_path))
    call(__import__("tenscope_written").Net)
    assert sources(run)[str(path)] == text


def test_code_that_is_in_no_file(run):
    text = "from torch import nn\nclass Cell(nn.Module):\n    def forward(self, x):\n        return x\n"
    file = "<ipython-input-7-tenscope>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    made = {"__name__": "tenscope_notebook"}
    exec(compile(text, file, "exec"), made)
    call(made["Cell"])
    unknown = {"__name__": "tenscope_nowhere"}
    exec("from torch import nn\nclass Bare(nn.Module):\n    def forward(self, x):\n        return x\n", unknown)
    call(unknown["Bare"])
    assert dict(sources(run)) == {file: text}
    assert sources(run).path(file) == "" and sources(run).left_out == {}


def test_a_module_in_an_archive(run, tmp_path, monkeypatch):
    text = PLAIN
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("tenscope_zipped.py", text)
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    call(__import__("tenscope_zipped").Net)
    assert list(sources(run).values()) == [text]


def test_other_encodings_are_kept_as_utf8(run, tmp_path, monkeypatch):
    text = f"# -*- coding: latin-1 -*-\n# \u00e9\n{PLAIN}"
    path = tmp_path / "tenscope_latin.py"
    path.write_bytes(text.encode("latin-1"))
    os.utime(path, (1, 1))
    monkeypatch.syspath_prepend(str(tmp_path))
    call(__import__("tenscope_latin").Net)
    assert sources(run)[str(path)] == text


def test_limits_are_said(run, tmp_path, monkeypatch):
    from tenscope.recording import sources as kept

    text = PLAIN
    large, _ = imported(tmp_path, "tenscope_large", text + "#" * 2000, monkeypatch)
    small, _ = imported(tmp_path, "tenscope_small", text, monkeypatch)
    other, _ = imported(tmp_path, "tenscope_other", text + "#", monkeypatch)
    monkeypatch.setattr(kept, "LARGEST_BYTES", 1000)
    monkeypatch.setattr(kept, "MOST_BYTES", len(text) + 10)
    for module in (large, small, other):
        call(module.Net)
    found = sources(run)
    assert list(found.values()) == [text]
    assert {Path(file).stem: reason for file, reason in found.left_out.items()} == {
        "tenscope_large": "it is larger than 1000 bytes",
        "tenscope_other": f"the sources of this process are more than {len(text) + 10} bytes",
    }
    command("verify", run.path, check=None)


def test_what_goes_wrong_loses_a_source_and_no_event(tmp_path, monkeypatch):
    from tenscope.recording import sources as kept

    monkeypatch.setattr(kept, "_text_of", lambda *_: 1 / 0)
    with tenscope.Run(tmp_path, name="odd") as run:
        call(torch.nn.Linear, 8, 2)
        tenscope.record("x", 1)
    assert [event.kind for event in tenscope.open(run.path)][:2] == ["enter", "value"] and run.dropped == 0
    monkeypatch.undo()
    monkeypatch.setattr(kept.KeptSources, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with tenscope.Run(tmp_path, name="full_disk") as run:
        call(torch.nn.Linear, 8, 2)
    (reason,) = tenscope.open(run.path).sources.left_out.values()
    assert reason == "it could not be written: No space left"


def test_sites_of_record_watch_and_tree(run, tmp_path, monkeypatch):
    recorded, _ = imported(
        tmp_path, "tenscope_recorded", "import tenscope\ndef go():\n    tenscope.record('x', 1)\n", monkeypatch
    )
    watched, _ = imported(
        tmp_path,
        "tenscope_watched",
        "import tenscope\n@tenscope.watch('y')\ndef go():\n    y = 1\n    y = 2\n    return y\n",
        monkeypatch,
    )
    treed, _ = imported(
        tmp_path, "tenscope_treed", "import tenscope\n@tenscope.tree\ndef go():\n    return 1\n", monkeypatch
    )
    assert not sources(run)
    for module in (recorded, watched, treed):
        module.go()
        module.go()
    names = [Path(note.meta["file"]).stem for note in notes(tenscope.open(run.path), "source")]
    assert names == ["tenscope_recorded", "tenscope_watched", "tenscope_treed"]


def test_each_run_and_each_process_notes_its_own(tmp_path, monkeypatch):
    module, _ = imported(
        tmp_path, "tenscope_twice", "import tenscope\ndef go():\n    tenscope.record('x', 1)\n", monkeypatch
    )
    for name in ("one", "two"):
        with tenscope.Run(tmp_path, name=name) as run:
            module.go()
            child = os.fork()
            if child == 0:
                module.go()
                run.close()
                os._exit(0)
            os.waitpid(child, 0)
        found = notes(tenscope.open(run.path), "source")
        assert sorted(note.writer.partition(".")[0] for note in found) == ["rank-0", "rank-0"]
        assert len({note.writer for note in found}) == 2
        assert len(list((run.path / "sources").iterdir())) == 1


def test_off(tmp_path, monkeypatch):
    module, _ = imported(
        tmp_path, "tenscope_off", "import tenscope\ndef go():\n    tenscope.record('x', 1)\n", monkeypatch
    )
    with tenscope.Run(tmp_path, name="off", sources=False) as run:
        module.go()
        call(torch.nn.Linear, 8, 2)
    assert not (run.path / "sources").exists() and not notes(tenscope.open(run.path), "source")
    monkeypatch.setenv("TENSCOPE_SOURCES", "0")
    with tenscope.Run(tmp_path, name="off_too") as run:
        module.go()
    assert not (run.path / "sources").exists()


def test_training_and_dtype_are_named(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    other = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    other.load_state_dict(model.state_dict())
    made = []
    for name, net in (("train", model.train()), ("eval", other.eval())):
        torch.manual_seed(0)
        with tenscope.Run(tmp_path, name=name) as run, tenscope.trace(net, params=True):
            net(torch.ones(2, 8))
        made.append(run.path)
    found = first(*made)
    assert found["module"] == "1" and found["code"]["source"] == "same"
    assert {"name": "training", "a": True, "b": False} in found["code"]["attributes"]
    # A class of torch's own has no site in the journal; where it begins is in its kept source.
    file, line = found["site"].rsplit(":", 1)
    assert os.path.abspath(file) == torch.nn.modules.dropout.__file__
    assert "def forward" in Path(file).read_text().splitlines()[int(line) - 1]


class Cast(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.1, 0.9, 8).to(dtype))

    def forward(self, x):
        return x * self.weight.float()


def test_the_dtype_of_parameters_is_named(tmp_path):
    made = []
    for name, dtype in (("wide", torch.float32), ("narrow", torch.bfloat16)):
        model = Cast(dtype)
        with tenscope.Run(tmp_path, name=name) as run, tenscope.trace(model, params=True):
            model(torch.ones(2, 8))
        made.append(run.path)
    found = first(*made)
    assert found["cause"] == "initial" and found["code"]["source"] == "same"
    assert found["code"]["attributes"] == [{"name": "dtype of weight", "a": "float32", "b": "bfloat16"}]
    assert 'dtype of weight "float32" → "bfloat16"' in command("diff", *made, check=1).stdout


def test_a_transformers_model_whose_configuration_differs(tmp_path):
    transformers = pytest.importorskip("transformers")
    made = []
    for name, eps in (("one", 1e-6), ("two", 1e-2)):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
        )
        config.rms_norm_eps = eps
        model = transformers.LlamaForCausalLM(config).eval()
        with tenscope.Run(tmp_path, name=name) as run, tenscope.trace(model, params=True), torch.no_grad():
            model(torch.arange(6).reshape(1, 6))
        made.append(run.path)
    found = first(*made)
    assert found["code"]["class_a"] == "transformers.models.llama.modeling_llama:LlamaRMSNorm"
    assert found["code"]["source"] == "same"
    assert {"name": "variance_epsilon", "a": 1e-6, "b": 1e-2} in found["code"]["attributes"]
    document = tenscope_json("diff", *made, check=1)
    assert ("", "config.rms_norm_eps") in [(one["module"], one["name"]) for one in document["attributes"]]
    kept = tenscope.open(made[0]).sources
    llama = next(file for file in kept if file.endswith("modeling_llama.py"))
    assert kept[llama] == Path(sys.modules["transformers.models.llama.modeling_llama"].__file__).read_text()


def test_two_ranks_write_one_copy(tmp_path):
    write(tmp_path, MODEL, "model.py")
    script = """
        import os, torch, torch.distributed as dist
        from model import Net
        dist.init_process_group("gloo")
        dist.barrier()
        torch.manual_seed(0)
        net = Net()
        net(torch.randn(4, 8))
        dist.barrier()  # one that is gone early is missed by the other
        dist.destroy_process_group()
    """
    write(tmp_path, textwrap.dedent(script), "ranks.py")
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]
    done = tenscope_run(tmp_path, "--name", "two", *words)
    assert done.returncode == 0, done.stderr
    run = tenscope.open(tmp_path / "runs" / "two")
    ranks = sorted(note.rank for note in notes(run, "source") if note.meta["file"] == "model.py")
    assert ranks == [0, 1] and run.rank(1).sources["model.py"] == MODEL
    assert sorted(path.suffix for path in (run.path / "sources").iterdir()) == [".py"] * 4
