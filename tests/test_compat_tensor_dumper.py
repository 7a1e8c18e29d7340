"""Tensor Dumper's document, snippet by snippet, with the import changed."""

import array
import importlib
import importlib.metadata
import json
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def tensor_dumper(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.startswith("tenscope.compat.tensor_dumper")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("tenscope.compat.tensor_dumper")


def only_folder(base):
    (folder,) = Path(base).iterdir()
    return folder


def dumped(folder):
    metadata = {"runtime_info.json", "packages.json", "git_info.json", "project.patch", "untracked.patch", "run.json"}
    return sorted(p.name for p in Path(folder).iterdir() if p.is_file() and p.name not in metadata)


def test_quick_start(tensor_dumper, capsys):
    tensor_dumper.init("experiments")
    output = torch.randn(10, 10)
    hidden_state, attention_weights = torch.ones(3), np.eye(2)
    tensor_dumper.dump(output, "layer1_output")
    tensor_dumper.dump(hidden_state, "hidden")
    tensor_dumper.dump(attention_weights, "attention")
    folder = only_folder("experiments")
    assert re.fullmatch(r"\d{8}_\d{6}", folder.name)
    assert str(folder) in capsys.readouterr().out
    assert dumped(folder) == ["attention.npy", "hidden.pt", "layer1_output.pt"]
    assert torch.equal(torch.load(folder / "layer1_output.pt", weights_only=True), output)
    assert np.array_equal(np.load(folder / "attention.npy"), attention_weights)
    assert tensor_dumper.compare(output, output + 1e-7, atol=1e-5, rtol=1e-5) is True
    assert tensor_dumper.compare(output, output + 1e-3, atol=1e-5, rtol=1e-5) is False


def test_metadata_files(tensor_dumper, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--epochs", "100"])
    monkeypatch.setenv("MY_SECRET_TOKEN", "hunter2")
    tensor_dumper.init("experiments")
    folder = only_folder("experiments")
    info = json.loads((folder / "runtime_info.json").read_text())
    assert set(info) == {"command", "environment_variables", "working_directory", "timestamp"}
    assert info["command"] == {
        "executable": sys.executable,
        "argv": ["train.py", "--epochs", "100"],
        "full_command": "train.py --epochs 100",
    }
    assert info["environment_variables"]["MY_SECRET_TOKEN"] != "hunter2"
    assert info["working_directory"] == os.getcwd() and info["timestamp"].endswith("+08:00")
    packages = json.loads((folder / "packages.json").read_text())
    assert packages["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert packages["platform"] == sys.platform
    assert packages["packages"]["torch"]["location"] == str(Path(torch.__file__).parent)
    assert set(packages["packages"]) <= {"torch", "numpy", "tensorflow", "jax", "pandas", "scipy"}
    git = json.loads((folder / "git_info.json").read_text())
    assert set(git) == {"project_git_info", "packages_git_info", "runtime_modifications"}
    assert git["project_git_info"] is None
    assert (folder / "packages.json").read_text().startswith('{\n  "')


def test_git_info_and_patch_in_a_repository(tensor_dumper, tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    Path("model.py").write_text("x = 2\n")
    git("add", "-A")
    git("commit", "-qm", "Add new feature")
    Path("model.py").write_text("x = 3\n")
    tensor_dumper.init("experiments")
    folder = only_folder("experiments")
    info = json.loads((folder / "git_info.json").read_text())["project_git_info"]
    assert info["branch"] == "main" and info["status"] == "dirty" and info["git_diff"] == "See project.patch"
    assert info["log_entries_count"] == 1 and info["git_log"][0]["message"] == "Add new feature"
    assert re.match(r"\d{4}-\d\d-\d\d", info["git_log"][0]["date"])
    assert b"+x = 3" in (folder / "project.patch").read_bytes()
    stamps = {p.name: p.stat().st_mtime_ns for p in folder.iterdir() if p.suffix in (".json", ".patch")}
    tensor_dumper.dump(torch.ones(2), "a")
    assert {n: (folder / n).stat().st_mtime_ns for n in stamps} == stamps


def test_the_patch_applies_while_untracked_sources_lie_there(tensor_dumper, tmp_path):
    def git(*arguments, cwd=tmp_path):
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        return subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, cwd=cwd).stdout

    git("init", "-q", "-b", "main")
    Path("model.py").write_text("x = 2\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    Path("model.py").write_text("x = 3\n")
    Path("helper.py").write_text("new = 1\n")
    tensor_dumper.init("experiments")
    folder = only_folder("experiments").absolute()
    info = json.loads((folder / "git_info.json").read_text())["project_git_info"]
    assert info["git_diff"] == "See project.patch" and info["status"] == "dirty"

    git("stash")
    git("apply", str(folder / "project.patch"))
    assert Path("model.py").read_text() == "x = 3\n"

    git("clone", "-q", str(tmp_path), "elsewhere")
    clone = tmp_path / "elsewhere"
    git("apply", str(folder / "project.patch"), str(folder / "untracked.patch"), cwd=clone)
    assert (clone / "model.py").read_text() == "x = 3\n" and (clone / "helper.py").read_text() == "new = 1\n"

    command = [sys.executable, "-m", "tenscope.metadata.repro", str(folder), "--into", "again"]
    subprocess.run(command, check=True, capture_output=True)
    assert Path("again/model.py").read_text() == "x = 3\n" and Path("again/helper.py").read_text() == "new = 1\n"


def test_names_that_are_missing_or_given_twice(tensor_dumper):
    tensor_dumper.init("d")
    tensor_dumper.dump(torch.ones(1), update_metadata=False)
    tensor_dumper.dump(np.ones(1), None, False)
    tensor_dumper.dump({"a": 1}, "loss", False)
    for _ in range(3):
        tensor_dumper.dump(torch.ones(1), "loss", False)
    tensor_dumper.dump(None, "nothing", False)
    tensor_dumper.dump([1], update_metadata=False)
    assert dumped(only_folder("d")) == [
        "dump_0000.pt", "dump_0001.npy", "dump_0006.pkl", "loss.pkl", "loss.pt", "loss_1.pt", "loss_2.pt",
    ]  # fmt: skip


def test_types_and_their_files(tensor_dumper):
    tensor_dumper.init("d")
    folder = only_folder("d")
    tensor_dumper.dump(torch.nn.Parameter(torch.ones(2)), "parameter", False)
    tensor_dumper.dump(array.array("d", [1.0]), "not_numpy", False)
    tensor_dumper.dump({"x": [1, 2.5, "three"]}, "nest", False)
    assert dumped(folder) == ["nest.pkl", "not_numpy.pkl", "parameter.pt"]
    assert pickle.loads((folder / "nest.pkl").read_bytes()) == {"x": [1, 2.5, "three"]}
    with pytest.raises(Exception, match=r"(?i)pickle"):
        tensor_dumper.dump(lambda: 0, "bad", False)
    tensor_dumper.dump(torch.ones(1), "after", False)
    assert "after.pt" in dumped(folder) and "bad.pkl" not in dumped(folder)


def test_enable_disable_and_dump_before_init(tensor_dumper):
    with pytest.raises(RuntimeError):
        tensor_dumper.dump(torch.ones(1))
    tensor_dumper.disable()
    assert tensor_dumper.dump(torch.ones(1)) is None
    tensor_dumper.enable()
    tensor_dumper.init("d")
    tensor_dumper.update_metadata()
    tensor_dumper.init("d")
    tensor_dumper.dump(torch.ones(1), "x")
    first, second = sorted(Path("d").iterdir())
    assert dumped(first) == [] and dumped(second) == ["x.pt"]
    assert {"runtime_info.json", "packages.json", "git_info.json"} <= {p.name for p in second.iterdir()}


def test_comparing_objects_and_files(tensor_dumper, tmp_path):
    values = torch.randn(10, 10)
    torch.save(values, "output.pt")
    np.save("output.npy", values.numpy())
    Path("plain.pkl").write_bytes(pickle.dumps({"a": [1.0, (2, "x")]}))
    compare = tensor_dumper.compare
    assert compare("output.pt", "output.npy") is True
    assert compare(Path("output.npy"), values) is True
    assert compare("output.pt", values.numpy()[::-1]) is False
    assert compare(values, values.double().numpy()) is True
    assert compare("plain.pkl", {"a": [1.0 + 1e-9, (2, "x")]}) is True
    assert compare("plain.pkl", {"a": [1.1, (2, "x")]}) is False
    assert compare(torch.ones(3), torch.ones(1, 3)) is False
    assert compare(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")])) is False
    assert compare(torch.tensor(float("inf")), np.array(np.inf)) is True
    assert compare(torch.ones(2, dtype=torch.bfloat16), torch.ones(2)) is True
    assert compare(torch.nn.Parameter(torch.ones(2)), np.ones(2)) is True
    assert compare({"x": values}, {"x": values.clone()}) is True
    with pytest.raises(FileNotFoundError):
        compare("missing.pt", values)
    with pytest.raises(ValueError):
        compare("what.xyz", values)


class Custom:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value


def test_a_pickle_of_an_unknown_class_needs_trust(tensor_dumper):
    Path("odd.pkl").write_bytes(pickle.dumps(Custom(1)))
    with pytest.raises(Exception, match=r"^[^\n]*odd.pkl: .*say tensor_dumper.compare\(a, b, trust=True\)$"):
        tensor_dumper.compare("odd.pkl", Custom(1))
    assert tensor_dumper.compare("odd.pkl", Custom(1), trust=True) is True


def test_what_this_program_has_dumped_needs_no_trust(tensor_dumper):
    tensor_dumper.init("d")
    tensor_dumper.dump(Custom(1), "thing", False)
    tensor_dumper.dump(Custom(2), "thing", False)
    first, second = (only_folder("d") / name for name in ("thing.pkl", "thing_1.pkl"))
    assert tensor_dumper.compare(first, Custom(1)) is True and tensor_dumper.compare(first, second) is False
    first.write_bytes(pickle.dumps(Custom(3)))
    with pytest.raises(Exception, match="trust=True"):
        tensor_dumper.compare(first, Custom(3))


def test_version(tensor_dumper):
    assert tensor_dumper.__version__ == importlib.metadata.version("tenscope")


def test_registry(tensor_dumper):
    core = importlib.import_module("tenscope.compat.tensor_dumper.core")
    registry = importlib.import_module("tenscope.compat.tensor_dumper.registry")

    class TextSerializer(registry.Serializer):
        def save(self, obj, filepath):
            Path(filepath).write_text(str(obj.value))

        def load(self, filepath):
            return Custom(float(Path(filepath).read_text()))

        def get_extension(self):
            return ".custom"

    class CustomComparator(registry.Comparator):
        def compare(self, a, b, **kwargs):
            return abs(a.value - b.value) <= kwargs["atol"]

    dumper = core.TensorDumper()
    dumper.registry.register_serializer(f"{Custom.__module__}.Custom", TextSerializer())
    dumper.registry.register_serializer_for_extension("CUSTOM", TextSerializer())
    dumper.registry.register_comparator(f"{Custom.__module__}.Custom", CustomComparator())
    dumper.init("d")
    dumper.dump(Custom(2.5), "thing")
    assert dumped(only_folder("d")) == ["thing.custom"]
    assert dumper.compare(next(Path("d").rglob("thing.custom")), Custom(2.6), atol=0.2) is True
    assert dumper.compare(Custom(2.5), Custom(3.5), atol=0.2) is False
    assert tensor_dumper.compare(torch.ones(1), torch.ones(1))  # the global one is untouched


def test_runtime_modification_is_reported(tensor_dumper, tmp_path):
    script = Path("patched.py")
    script.write_text(
        "import torch\nfrom tenscope.compat import tensor_dumper\n"
        "def mine(x): return x\ntorch.relu = mine\ntensor_dumper.init('d')\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
    found = json.loads((only_folder("d") / "git_info.json").read_text())["runtime_modifications"]
    assert found["torch"]["package"] == "torch" and found["torch"]["has_runtime_modifications"] is True


TRAIN = """
import sys, torch, tenscope.compat.tensor_dumper
sys.modules["tensor_dumper"] = tenscope.compat.tensor_dumper
import tensor_dumper
from model import factor
tensor_dumper.init("experiments")
torch.manual_seed(0)
tensor_dumper.dump(torch.randn(4) * factor * float(sys.argv[-1]), "output")
"""

REPRODUCE = r"""
set -e
jq -r '.python_version' "$RUN/packages.json" > python_version
jq -r '.all_packages | to_entries[] | "\(.key)==\(.value)"' "$RUN/packages.json" > requirements.txt
git checkout -q "$(jq -r '.project_git_info.commit_id' "$RUN/git_info.json")"
git apply "$RUN/project.patch"
"$PYTHON" $(jq -r '.command.full_command' "$RUN/runtime_info.json")
"""


@pytest.mark.skipif(shutil.which("jq") is None, reason="the document uses jq")
def test_reproducing_a_run_as_the_document_says(tensor_dumper, tmp_path):
    def git(*arguments, cwd):
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, cwd=cwd)

    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    git("init", "-q", cwd=first)
    (first / "train.py").write_text(TRAIN)
    (first / "model.py").write_text("factor = 2\n")
    git("add", "-A", cwd=first)
    git("commit", "-qm", "one", cwd=first)
    git("clone", "-q", str(first), str(second), cwd=tmp_path)
    (first / "model.py").write_text("factor = 3\n")
    subprocess.run([sys.executable, "train.py", "--lr", "0.001"], cwd=first, check=True, capture_output=True)
    run = only_folder(first / "experiments")
    assert json.loads((run / "runtime_info.json").read_text())["command"]["full_command"] == "train.py --lr 0.001"

    places = {"RUN": str(run), "PYTHON": sys.executable}
    subprocess.run(["bash", "-c", REPRODUCE], cwd=second, check=True, capture_output=True, env=os.environ | places)
    again = only_folder(second / "experiments")
    assert torch.equal(torch.load(again / "output.pt"), torch.load(run / "output.pt"))
    assert f"torch=={importlib.metadata.version('torch')}" in (second / "requirements.txt").read_text().splitlines()
    assert (second / "python_version").read_text().strip() == platform.python_version()


DISTRIBUTED = """
import sys, torch, torch.distributed as dist
from tenscope.compat import tensor_dumper
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
tensor_dumper.init("experiments")
tensor_dumper.dump(torch.full((2,), float(rank)), "layer1_output")
tensor_dumper.dump(torch.tensor(0.5), "loss")
tensor_dumper.dump(torch.tensor(0.25), "loss")
if rank == 0:
    tensor_dumper.update_metadata()
dist.barrier()
dist.destroy_process_group()
"""


def test_two_ranks_share_one_folder(tensor_dumper, tmp_path):
    Path("job.py").write_text(DISTRIBUTED)
    jobs = [
        subprocess.Popen([sys.executable, "job.py", str(r), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for r in range(2)
    ]
    outputs = [job.communicate(timeout=120)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    folder = only_folder("experiments")
    names = [f"{n}_rank{r}.pt" for n in ("layer1_output", "loss", "loss_1") for r in range(2)]
    assert dumped(folder) == sorted(names)
    assert {"runtime_info.json", "packages.json", "git_info.json"} <= {p.name for p in folder.iterdir()}
    assert tensor_dumper.compare(str(folder / "loss_rank0.pt"), str(folder / "loss_rank1.pt")) is True


ALONE = """
import numpy as np
from tenscope.compat import tensor_dumper
for _ in range(2):
    tensor_dumper.init("experiments")
    tensor_dumper.dump(np.ones(2), "x")
"""


def test_ranks_without_a_process_group_share_one_folder(tensor_dumper, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    Path("job.py").write_text(ALONE)
    jobs = [
        subprocess.Popen([sys.executable, "job.py"], env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2"})
        for rank in range(2)
    ]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0]
    folders = sorted(Path("experiments").iterdir())
    assert [dumped(folder) for folder in folders] == [["x_rank0.npy", "x_rank1.npy"]] * 2
    for folder in folders:
        assert {"runtime_info.json", "packages.json", "git_info.json"} <= {p.name for p in folder.iterdir()}
    assert not list((tmp_path / "tmp").iterdir()), "what the ranks agreed by is taken away"


def test_the_folder_is_a_tenscope_run(tensor_dumper):
    import tenscope

    tensor_dumper.init("experiments")
    big = torch.randn(1000, 100)
    tensor_dumper.dump(big, "big")
    tensor_dumper.dump(np.arange(6).reshape(2, 3), "array")
    tensor_dumper.dump({"lr": 0.1}, "settings")
    folder = only_folder("experiments")
    run = tenscope.open(folder)
    assert np.array_equal(run["big", 0], big.numpy())
    assert np.array_equal(run["array", 0], np.arange(6).reshape(2, 3))
    stored = sum(p.stat().st_size for p in folder.rglob("*.safetensors*"))
    assert stored < big.nbytes // 4, "the bytes must not be stored twice"
