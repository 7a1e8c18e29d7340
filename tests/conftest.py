"""Settings of all tests, and which of them run on which Python.

Runs made by tests do not describe how they were made (a git and package scan each) unless a test asks for it, and say
nothing of where they are. Where torch is not installed, the files that are about nothing else are left out. Generated
examples are the same in every run; HYPOTHESIS_PROFILE=random looks for new ones.
"""

import gc
import importlib.util
import os
from pathlib import Path

import pytest
from browser_page import browser, show  # noqa: F401  fixtures
from hypothesis import settings
from s3_server import SECRET, S3Server

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

os.environ.setdefault("TENSCOPE_METADATA", "0")
os.environ.setdefault("TENSCOPE_QUIET", "1")

# Every test runs on the main Python. The others (`pytest --other-python`, as `make test` calls it) leave out the files
# below: there Python only prepares what the C++ program or the comparison then reads, and its version makes no
# difference. A file that is not listed, as a new one, runs on every Python.
ONE_PYTHON_IS_ENOUGH = {
    "bitwise", "budget", "bugs", "check", "check_origins", "checkpoint_mistakes", "checkpoint_rounding",
    "checkpoints", "cli", "conversions", "cpp", "crash", "diff_frame", "docs_links", "docs_reference",
    "engine_architectures", "engine_parts", "engines", "engines_random", "executors", "gguf", "graph",
    "hand_made_parts", "hdf5", "hostile_files", "install", "layouts", "layouts_torch", "many_ranks", "object_store",
    "pipeline_check", "precision", "push", "python_rooms", "rooms", "rows", "rows_engine", "rows_truth", "rundiff",
    "rundiff_rewrites", "rundiff_truth", "rundiff_wild", "shards", "sketch", "stubs", "tensorboard", "upgrades_bench",
    "view_answers", "view_files", "view_hostile", "view_live", "view_measures", "view_page", "view_page_odd",
    "view_page_tensor", "view_page_views", "view_requests", "view_runs", "view_server", "view_subjects", "web",
    "words",
}  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--other-python", action="store_true", help="leave out what one Python is enough for")


def pytest_configure(config):
    there = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    missing = sorted(ONE_PYTHON_IS_ENOUGH - there)
    if missing:
        raise pytest.UsageError(f"tests/conftest.py lists files that are not there: {' '.join(missing)}")


def pytest_ignore_collect(collection_path, config):
    if config.getoption("--other-python") and collection_path.stem.removeprefix("test_") in ONE_PYTHON_IS_ENOUGH:
        return True
    return None


def pytest_collection_finish():
    """What was imported is not looked at by every collection of garbage from here on, and not copied by each fork."""
    gc.collect()
    gc.freeze()


if importlib.util.find_spec("torch") is None:
    collect_ignore = [
        "test_compat_tensortrace.py",
        "test_compat_torchspy.py",
        "test_describe.py",
        "test_rundiff_rewrites.py",
        "test_sources.py",
        "test_spy_and_locals.py",
        "test_trace.py",
        "test_trace_transformers.py",
    ]


@pytest.fixture(scope="session")
def s3_server():
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server, tmp_path, monkeypatch):
    """The server, with an empty bucket, an empty cache and credentials in the environment."""
    import s3fs

    settings = {
        "AWS_ENDPOINT_URL": s3_server.url,
        "AWS_ACCESS_KEY_ID": "AKIATESTS",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "TENSCOPE_CACHE": str(tmp_path / "cache"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3_server.refuse = lambda method, key: False
    s3fs.S3FileSystem.clear_instance_cache()
    s3_server.empty_bucket()
    return s3_server
