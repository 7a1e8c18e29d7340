"""Settings of all tests.

Runs made by tests do not describe how they were made (a git and package scan each) unless a test asks for it, and say
nothing of where they are. Where torch is not installed, the files that are about nothing else are left out. Generated
examples are the same in every run; HYPOTHESIS_PROFILE=random looks for new ones.
"""

import importlib.util
import os

import pytest
from hypothesis import settings
from s3_server import SECRET, S3Server

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

os.environ.setdefault("TENSCOPE_METADATA", "0")
os.environ.setdefault("TENSCOPE_QUIET", "1")

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
