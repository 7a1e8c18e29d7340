"""Settings of all tests.

Runs made by tests do not describe how they were made (a git and package scan each) unless a test asks for it. Where
torch is not installed, the files that are about nothing else are left out. Generated examples are the same in every
run; HYPOTHESIS_PROFILE=random looks for new ones.
"""

import importlib.util
import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

os.environ.setdefault("TENSCOPE_METADATA", "0")

if importlib.util.find_spec("torch") is None:
    collect_ignore = [
        "test_compat_tensortrace.py",
        "test_compat_torchspy.py",
        "test_rundiff_rewrites.py",
        "test_spy_and_locals.py",
        "test_trace.py",
        "test_trace_transformers.py",
    ]
