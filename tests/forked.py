"""Records a program and a variant of it, as `tenscope run` does, each in a process of its own, and compares the two."""

import atexit
import multiprocessing

import tenscope
import torch
import torch._dynamo  # slow: forked children would each import it for their optimizer


def _record(folder, program, variant):
    from tenscope.launch import autorun
    from tenscope.launch.options import Options

    torch.set_num_threads(1)
    torch.manual_seed(0)
    autorun.arm(folder, Options())
    program(variant)
    atexit._run_exitfuncs()


def record_both(tmp_path, program):
    """program(False) and program(True), as two runs."""
    folders = tmp_path / "ref", tmp_path / "bug"
    for variant, folder in enumerate(folders):
        child = multiprocessing.get_context("fork").Process(target=_record, args=(folder, program, bool(variant)))
        child.start()
        child.join()
        assert child.exitcode == 0
    return folders


def compare(tmp_path, program, swapped=False):
    a, b = record_both(tmp_path, program)
    return tenscope.diff(b, a) if swapped else tenscope.diff(a, b)
