"""How a run was made: patches that apply, secrets that stay out, modifications that are found, no false alarms."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tenscope.metadata import git, packages, runtime
from tenscope.metadata.patches import Scanner
from tenscope.metadata.store import MetadataStore


def run_git(folder, *arguments):
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True).stdout


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    run_git(root, "init", "-q", "-b", "main")
    (root / "model.py").write_text("def f(x):\n    return x * 2\n")
    (root / "windows.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (root / "latin.txt").write_bytes(b"caf\xe9\n")
    (root / "weights.bin").write_bytes(bytes(range(256)) * 8)
    (root / "gone.py").write_text("old = True\n")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "first | with a bar")
    return root


def change_everything(root):
    (root / "model.py").write_text("def f(x):\n    return x * 3")  # no newline at the end
    (root / "windows.py").write_bytes(b"a = 1\r\nb = 3\r\nc = 4\r\n")
    (root / "latin.txt").write_bytes(b"caf\xe9 \xff\n")
    (root / "weights.bin").write_bytes(bytes(reversed(range(256))) * 8)
    (root / "gone.py").unlink()
    (root / "staged.py").write_text("new = 1\n")
    run_git(root, "add", "staged.py")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "untracked with space.py").write_text("u = 'ü'\n")


def tree_of(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


HOSTILE_SETTINGS = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "color.ui": "always",
    "diff.external": "false",
    "diff.context": "0",
    "diff.renames": "copies",
    "diff.relative": "true",
}


def test_patch_applied_to_the_commit_gives_the_same_tree(repository, tmp_path):
    for name, value in HOSTILE_SETTINGS.items():
        run_git(repository, "config", name, value)
    change_everything(repository)
    before = run_git(repository, "status", "--porcelain")
    info, patch = git.collect(repository / "deep", excluded=[])
    assert run_git(repository, "status", "--porcelain") == before

    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", str(repository), str(clone))
    run_git(clone, "checkout", "-q", info["commit_id"])
    (tmp_path / "project.patch").write_bytes(patch)
    run_git(clone, "apply", str(tmp_path / "project.patch"))
    assert tree_of(clone) == tree_of(repository)


def test_a_change_in_the_second_of_the_commit_that_keeps_the_size_is_in_the_patch(repository):
    run_git(repository, "config", "core.trustctime", "false")
    model, index = repository / "model.py", repository / ".git" / "index"
    second = int(model.stat().st_mtime) - 10
    os.utime(model, (second, second))
    run_git(repository, "update-index", "--refresh")
    model.write_text(model.read_text().replace("2", "3"))
    for path in (model, index):
        os.utime(path, (second, second))
    (repository / "new.py").write_text("new = 1\n")
    _, patch = git.collect(repository, excluded=[])
    assert b"+    return x * 3" in patch and b"+new = 1" in patch


def test_git_info_tells_commit_branch_state_and_history(repository):
    clean, patch = git.collect(repository, excluded=[])
    assert patch == b"" and clean["status"] == "clean" and clean["git_diff"] == ""
    assert clean["branch"] == "main" and clean["git_log"][0]["message"] == "first | with a bar"
    assert clean["commit_id"] == run_git(repository, "rev-parse", "HEAD").decode().strip()
    change_everything(repository)
    assert git.collect(repository, excluded=[])[0]["status"] == "dirty"


def test_run_folders_and_large_files_stay_out_of_the_patch(repository):
    (repository / "runs").mkdir()
    (repository / "runs" / "notes.txt").write_text("not part of the program")
    (repository / "huge.txt").write_bytes(b"x" * (git.MAX_UNTRACKED_BYTES + 1))
    (repository / "tensor.pt").write_bytes(b"\0")
    info, patch = git.collect(repository, excluded=[repository / "runs"])
    assert patch == b""
    assert sorted(info["untracked_left_out"]) == ["huge.txt", "tensor.pt"]


def test_a_repository_without_commits_and_no_repository(tmp_path):
    run_git(tmp_path, "init", "-q")
    (tmp_path / "first.py").write_text("x = 1\n")
    info, patch = git.collect(tmp_path, excluded=[])
    assert info["commit_id"] is None and b"first.py" in patch
    assert git.collect("/", excluded=[]) == (None, b"")


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", "abc", True),
        ("OPENAI_API_KEY", "abc", True),
        ("HF_TOKEN", "abc", True),
        ("DB_PASSWORD", "abc", True),
        ("MYSQL_PWD", "abc", True),
        ("DATABASE_URL", "postgres://me:hunter2@db/x", True),
        ("SOMETHING", "ghp_abcdefghijklmnopqrst", True),
        ("PWD", "/home/me", False),
        ("PATH", "/usr/bin", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("KEYBOARD_LAYOUT", "de", False),
        ("CUDA_VISIBLE_DEVICES", "0,1", False),
    ],
)
def test_what_looks_like_a_credential(name, value, secret):
    assert runtime.looks_secret(name, value) == secret


def test_environment_is_redacted_unless_asked_for(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    assert runtime.environment()["MY_API_KEY"] == runtime.REDACTED
    monkeypatch.setenv("TENSCOPE_ENV", "all")
    assert runtime.environment()["MY_API_KEY"] == "hunter2"


def test_full_command_can_be_pasted_into_a_shell(tmp_path):
    script = tmp_path / "a script.py"
    script.write_text(
        "import sys\nfrom tenscope.metadata import runtime\nprint(runtime.full_command())\nprint(sys.argv)\n"
    )
    odd = ["it's", 'a "quoted" $HOME', ""]
    first = subprocess.run([sys.executable, str(script), *odd], capture_output=True, text=True, check=True).stdout
    command, argv = first.splitlines()
    again = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert again.splitlines()[1] == argv


def test_packages_lists_what_is_installed_and_where():
    import numpy

    info = packages.collect()
    assert info["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert info["all_packages"]["numpy"] == numpy.__version__
    assert info["packages"]["numpy"] == {"version": numpy.__version__, "location": str(Path(numpy.__file__).parent)}


LAYERS = """\
import functools


def scale(x):
    return 2 * x


def helper(x):
    return x


@functools.lru_cache
def cached(x):
    return x


class Layer:
    def forward(self, x):
        return x

    @property
    def size(self):
        return 1

    @staticmethod
    def make():
        return Layer()
"""


def scan(tmp_path, program, *modules):
    """Runs `program` in a project folder and returns what the scanner finds there."""
    (tmp_path / "layers.py").write_text(LAYERS)
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(program)
        + "\nimport json\nfrom tenscope.metadata import patches\n"
        + f"print(json.dumps(patches.collect({list(modules)!r}, {str(tmp_path)!r})))\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {(e["module"], e["name"], e["kind"]) for package in found.values() for e in package["modifications"]}


def test_a_plain_program_has_no_modifications(tmp_path):
    program = "import numpy\nimport layers\nfrom layers import scale, Layer\nclass Own(Layer):\n    pass\n"
    assert scan(tmp_path, program, "numpy") == set()


def test_replaced_functions_methods_and_properties_are_found(tmp_path):
    found = scan(
        tmp_path,
        """
        import numpy
        import layers
        def mine(*args): return 0
        layers.scale = mine
        layers.Layer.forward = mine
        layers.Layer.size = property(mine)
        layers.Layer.extra = mine
        numpy.sum = mine
        numpy.linalg.norm = lambda x: 0
        """,
        "numpy",
    )
    assert found == {
        ("layers", "scale", "replaced"),
        ("layers", "Layer.forward", "replaced"),
        ("layers", "Layer.size", "replaced"),
        ("layers", "Layer.extra", "added"),
        ("numpy", "sum", "replaced"),
        ("numpy.linalg", "norm", "replaced"),
    }


def test_what_one_library_puts_into_another_is_found(tmp_path):
    folder = tmp_path / "venv" / "site-packages"
    (folder / "layers_of").mkdir(parents=True)
    (folder / "layers_of" / "__init__.py").write_text("import speedup\nfrom speedup import twice\n" + LAYERS)
    (folder / "speedup.py").write_text("def twice(x): return 2 * x\ndef norm(x): return 0\n")
    program = f"""
    import sys
    sys.path.insert(0, {str(folder)!r})
    import layers_of, speedup
    layers_of.Layer.extra = speedup.norm
    """
    assert scan(tmp_path, program, "layers_of") == set()
    program += """
    layers_of.scale = speedup.twice
    layers_of.Layer.forward = speedup.norm
    """
    assert scan(tmp_path, program, "layers_of") == {
        ("layers_of", "scale", "replaced"),
        ("layers_of", "Layer.forward", "replaced"),
    }


def test_exchanged_code_is_found(tmp_path):
    found = scan(tmp_path, "import layers\nlayers.scale.__code__ = layers.helper.__code__\n")
    assert found == {("layers", "scale", "replaced")}


def test_a_source_that_changed_after_its_import_is_found(tmp_path):
    program = """
    import os, time, layers
    text = open(layers.__file__).read().replace('2 * x', '3 * x')
    time.sleep(0.3)
    open(layers.__file__, 'w').write(text + '# longer')
    """
    assert ("layers", "", "file") in scan(tmp_path, program)


def test_no_false_alarm_on_torch_and_its_patches_are_found(tmp_path):
    pytest.importorskip("torch")
    program = "import torch, numpy, torch.nn.functional as F, torch.distributed, torch.utils.data\n"
    assert scan(tmp_path, program, "torch", "numpy") == set()
    program += (
        "def mine(*a, **k): return a[0]\n"
        "torch.relu = F.linear = mine\ntorch.Tensor.add = mine\ntorch.nn.Linear.forward = mine\n"
        "F.softmax.__code__ = mine.__code__\n"
    )
    found = {(module, name) for module, name, _ in scan(tmp_path, program, "torch", "numpy")}
    assert found == {
        ("torch", "relu"),
        ("torch", "Tensor.add"),
        ("torch.nn.functional", "linear"),
        ("torch.nn.functional", "softmax"),
        ("torch.nn.modules.linear", "Linear.forward"),
    }


def test_files_are_written_again_only_when_they_change(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(repository)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    store = MetadataStore(folder)
    store.start()
    store.wait()
    names = {path.name for path in folder.iterdir()} - {"tenscope.patch"}  # of an editable install of ours
    assert names == {"runtime_info.json", "packages.json", "git_info.json"}
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    store.update()
    assert all(path.stat().st_mtime == 1 for path in folder.iterdir())
    change_everything(repository)
    store.update()
    changed = {path.name for path in folder.iterdir() if path.stat().st_mtime != 1} - {"tenscope.patch"}
    assert changed == {"git_info.json", "project.patch"}
    run_git(repository, "add", "-A")
    run_git(repository, "commit", "-qm", "second")
    store.update()
    assert not (folder / "project.patch").exists()


def settle(*folders):
    """Gives files times that a look at them trusts: they are not as young as the look itself."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.utime(path, (1, 1), follow_symlinks=False)
    time.sleep(0.05)


def test_what_cannot_have_changed_is_not_looked_at_again(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(repository)
    (repository / "deep").mkdir()
    (repository / "new.py").write_text("new = 1\n")
    settle(repository)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    store = MetadataStore(folder)
    store.update()
    asked = []
    run, scan, list_packages = git.subprocess.run, Scanner.scan_module, packages.importlib.metadata.distributions
    monkeypatch.setattr(git.subprocess, "run", lambda *a, **k: asked.append(a) or run(*a, **k))
    monkeypatch.setattr(Scanner, "scan_module", lambda *a: asked.append(a) or scan(*a))
    monkeypatch.setattr(packages.importlib.metadata, "distributions", lambda: asked.append(()) or list_packages())
    store.update()
    asked.clear()  # what this test has put into a module was seen
    for _ in range(3):
        store.update()
    assert asked == []

    def patch_after(change):
        change()
        store.update()
        return (folder / "project.patch").read_bytes()

    model = repository / "model.py"
    assert b"+    return x * 5" in patch_after(lambda: model.write_text("def f(x):\n    return x * 5\n"))
    assert b"+new = 2" in patch_after(lambda: (repository / "new.py").write_text("new = 2\n"))
    assert b"deep/inside.py" in patch_after(lambda: (repository / "deep" / "inside.py").write_text("x = 1\n"))
    assert b"gone.py" in patch_after((repository / "gone.py").unlink)
    assert b"model.py" not in patch_after(lambda: run_git(repository, "commit", "-qam", "second"))
    run_git(repository, "checkout", "-q", "-b", "other")
    store.update()
    assert json.loads((folder / "git_info.json").read_text())["project_git_info"]["branch"] == "other"


def test_a_function_that_is_replaced_later_is_found(tmp_path, monkeypatch):
    import numpy

    monkeypatch.chdir(tmp_path)
    store = MetadataStore(tmp_path)

    def modifications():
        store.update()
        return json.loads((tmp_path / "git_info.json").read_text())["runtime_modifications"].get("numpy", {})

    assert modifications() == {}
    with monkeypatch.context() as patch:
        patch.setattr(numpy.ma.MaskedArray, "sum", lambda self: 0)
        assert [found["name"] for found in modifications()["modifications"]] == ["MaskedArray.sum"]
    assert modifications() == {}
    with monkeypatch.context() as patch:
        patch.setattr(numpy.ma.MaskedArray.count, "__code__", (lambda self: 0).__code__)
        assert [found["name"] for found in modifications()["modifications"]] == ["MaskedArray.count"]
    assert modifications() == {}


PROGRAM = """
import numpy, tenscope
run = tenscope.init("runs")
tenscope.record("x", numpy.arange(3.0))
"""


def test_a_run_that_ends_at_once_has_all_of_it(repository, monkeypatch):
    monkeypatch.setenv("TENSCOPE_METADATA", "1")
    (repository / "train.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "train.py", "--lr", "0.1"], cwd=repository, check=True)
    (folder,) = (repository / "runs").iterdir()
    info = json.loads((folder / "runtime_info.json").read_text())
    assert info["command"]["argv"] == ["train.py", "--lr", "0.1"]
    assert info["working_directory"] == str(repository)
    assert b"+++ b/train.py" in (folder / "project.patch").read_bytes()
    assert json.loads((folder / "git_info.json").read_text())["runtime_modifications"] == {}
    assert "numpy" in json.loads((folder / "packages.json").read_text())["packages"]


def repro(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "tenscope.metadata.repro", *map(str, arguments)], cwd=cwd, capture_output=True, text=True
    )


TRAINING = """
import sys, numpy, tenscope, model
tenscope.init("runs")
rng = numpy.random.default_rng(int(sys.argv[1]))
w = rng.standard_normal(5)
for _ in range(3):
    w = model.f(w)
    tenscope.record("w", w)
    tenscope.step()
"""


def test_a_run_is_reproduced_from_its_folder_alone(repository, tmp_path, monkeypatch):
    import shutil

    import numpy
    import tenscope

    monkeypatch.setenv("TENSCOPE_METADATA", "1")
    (repository / "train.py").write_text(TRAINING)  # untracked
    (repository / "model.py").write_text("def f(x):\n    return x * 3 + 1\n")  # uncommitted
    subprocess.run([sys.executable, "train.py", "42"], cwd=repository, check=True)
    (run,) = (repository / "runs").iterdir()
    kept = tmp_path / "kept"
    shutil.copytree(run, kept)
    clone = tmp_path / "clone.git"
    run_git(tmp_path, "clone", "-q", "--bare", str(repository), str(clone))
    shutil.rmtree(repository)

    told = repro(kept)
    assert told.returncode == 0 and "git checkout" in told.stdout and "train.py 42" in told.stdout
    lost = repro(kept, "--into", tmp_path / "nowhere")
    assert lost.returncode == 2 and "--repo" in lost.stderr
    made = repro(kept, "--into", tmp_path / "again", "--repo", clone)
    assert made.returncode == 0, made.stderr
    assert f"numpy=={numpy.__version__}" in (tmp_path / "again" / "requirements.txt").read_text()
    subprocess.run([str(tmp_path / "again" / "run.sh")], check=True, env={**os.environ, "PYTHON": sys.executable})
    first, second = tenscope.open(kept), tenscope.open(tmp_path / "again" / "runs")
    assert first.steps("w") == second.steps("w") == [0, 1, 2]
    for step in range(3):
        assert numpy.asarray(first["w", step]).tobytes() == numpy.asarray(second["w", step]).tobytes()


def test_modifications_of_a_package_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_METADATA", "1")
    (tmp_path / "train.py").write_text(
        "import hypothesis, tenscope\nhypothesis.assume = lambda condition: True\n"
        'tenscope.init("asked", packages=["hypothesis"]).close()\ntenscope.init("not_asked").close()\n'
    )
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True)
    found = {
        name: json.loads(next((tmp_path / name).glob("*/git_info.json")).read_text())["runtime_modifications"]
        for name in ("asked", "not_asked")
    }
    (entry,) = found["asked"]["hypothesis"]["modifications"]
    assert (entry["module"], entry["name"], entry["kind"]) == ("hypothesis", "assume", "replaced")
    assert entry["defined_at"].endswith("train.py:2") and found["not_asked"] == {}


def test_repro_check_says_what_differs(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_METADATA", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (repository / "train.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "train.py"], cwd=repository, check=True)
    same = repro("runs", "--check", "--json", cwd=repository)
    assert same.returncode == 0, same.stdout
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    (repository / "model.py").write_text("changed = 1\n")
    differs = repro("runs", "--check", "--json", cwd=repository)
    found = json.loads(differs.stdout)
    assert differs.returncode == 1 and found["changes"] == ["model.py"]
    assert ["OMP_NUM_THREADS", None, "77"] in found["environment"] and found["packages"] == []
    assert repro(tmp_path, "--check").returncode == 2


def test_runs_beside_the_sources_stay_out_of_the_patch(repository, monkeypatch):
    monkeypatch.setenv("TENSCOPE_METADATA", "1")
    (repository / "train.py").write_text(PROGRAM.replace('"runs"', '"."'))
    for _ in range(2):
        subprocess.run([sys.executable, "train.py"], cwd=repository, check=True)
    for patch in repository.glob("*/project.patch"):
        assert b"+++ b/train.py" in patch.read_bytes() and b"run.json" not in patch.read_bytes()
    same = repro(".", "--check", "--json", cwd=repository)
    assert same.returncode == 0, same.stdout


def test_a_checkout_keeps_the_projects_own_files(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_METADATA", "1")
    own = {"train.py": PROGRAM, "run.sh": "echo own\n", "requirements.txt": "numpy\n"}
    for name, text in own.items():
        (repository / name).write_text(text)
    subprocess.run([sys.executable, "train.py"], cwd=repository, check=True)
    made = repro("runs", "--into", tmp_path / "again", cwd=repository)
    assert made.returncode == 0 and "requirements.repro.txt, run.repro.sh" in made.stdout, made.stderr
    assert {name: (tmp_path / "again" / name).read_text() for name in own} == own
    again = subprocess.run([tmp_path / "again" / "run.repro.sh"], env={**os.environ, "PYTHON": sys.executable})
    assert again.returncode == 0 and len(list((tmp_path / "again" / "runs").iterdir())) == 1
