"""Records a program and a variant of it, as `tenscope run` does, each in a process of its own, and compares the two."""

import atexit
import multiprocessing
import shutil

import tenscope
import torch
import torch._dynamo  # slow: forked children would each import it for their optimizer
from tenscope import _core


def _record(folder, program, variant, options):
    from tenscope.launch import autorun
    from tenscope.launch.options import Options

    torch.set_num_threads(1)
    torch.manual_seed(0)
    autorun.arm(folder, Options(**options))
    program(variant)
    atexit._run_exitfuncs()


def record(folder, program, variant, **options):
    """program(variant), with these options of `tenscope run`, as the run `folder`, which may be there already."""
    shutil.rmtree(folder, ignore_errors=True)
    child = multiprocessing.get_context("fork").Process(target=_record, args=(folder, program, variant, options))
    child.start()
    child.join()
    assert child.exitcode == 0
    return folder


def record_both(tmp_path, program):
    """program(False) and program(True), as two runs."""
    return record(tmp_path / "ref", program, False), record(tmp_path / "bug", program, True)


def write_profile(run, program, variant, runs=3):
    """What `tenscope noise` does, without its other threads and instructions: a fork has those of its parent."""
    profile = _core.NoiseProfile()
    for seed in range(1, runs + 1):
        moved = record(run.parent / "moved", program, variant, move=seed, other_kernels=seed % 3 == 0)
        profile.add(_core.measure_noise(str(run), str(moved), [f"seed {seed}"]))
    profile.write(run / "noise.json")
    return profile


def compare(tmp_path, program, swapped=False):
    a, b = record_both(tmp_path, program)
    return tenscope.diff(b, a) if swapped else tenscope.diff(a, b)
