"""Settings of all tests.

Runs made by tests do not describe how they were made (a git and package scan each) unless a test asks for it. Where
torch is not installed, the files that are about nothing else are left out.
"""

import importlib.util
import os

os.environ.setdefault("TENSCOPE_METADATA", "0")

if importlib.util.find_spec("torch") is None:
    collect_ignore = [
        "test_compat_tensortrace.py",
        "test_compat_torchspy.py",
        "test_trace.py",
        "test_trace_transformers.py",
    ]
