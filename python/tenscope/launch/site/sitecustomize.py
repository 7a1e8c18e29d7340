"""Python imports this at start in the processes of a recorded program: the recording reaches them too.

`tenscope run` puts this folder in front of PYTHONPATH. It leaves the path again, waits for torch, and hands on to a
sitecustomize that the user may have.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arm():
    from tenscope.launch import autorun

    autorun.arm_child()


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
if os.environ.get("TENSCOPE_RUN_OPTIONS"):
    try:
        _load("_tenscope_when_imported", os.path.join(os.path.dirname(_here), "when_imported.py")).WhenImported(
            "torch", _arm
        ).install()
    except Exception as error:
        print(f"tenscope: this process is not recorded: {error}", file=sys.stderr)

_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
