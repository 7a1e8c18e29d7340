"""The words of `tenscope run`, and running the program as Python would."""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.machinery
import importlib.util
import io
import os
import runpy
import shutil
import signal
import sys
import types

from tenscope import command_line
from tenscope.errors import Error
from tenscope.launch import autorun
from tenscope.launch.options import Options
from tenscope.recording import announce, ranks
from tenscope.recording.say import say, shown_path
from tenscope.recording.selectors import AROUND
from tenscope.recording.sizes import bytes_of


def _steps(text: str) -> tuple[int, int | None]:
    first, colon, end = text.partition(":")
    try:
        start = int(first or 0)
        return (start, int(end) if end else None) if colon else (start, start + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no step and no range of steps like 2:5") from None


def _where_of_ops(text: str) -> str:
    if text.startswith(":") and text not in AROUND:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(AROUND)}")
    return text


def _size(text: str) -> int:
    try:
        return bytes_of(text, "--max-bytes")
    except Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(
        "run",
        "Record a PyTorch script with no change to it, or an ONNX model",
        examples=[
            "tenscope run train.py --epochs 1",
            "tenscope run --name baseline --steps 0:3 train.py",
            "tenscope run --stats -m package.train",
            "tenscope run --against runs/baseline train.py",
        ],
        usage=[
            "tenscope run [options] script.py [args...]",
            "tenscope run [options] -m module [args...]",
            "tenscope run [options] --onnx model.onnx --inputs x.npz",
        ],
    )
    parser.add_argument("--out", default="runs", metavar="DIR", help="Base folder (default: runs)")
    parser.add_argument("--name", metavar="NAME", help="The run's folder in it (default: a timestamp)")
    parser.add_argument("--replace", action="store_true", help="With --name: remove an earlier run of that name first")
    parser.add_argument("--python", metavar="PYTHON", help="The interpreter to use (default: tenscope's own)")
    parser.add_argument("--stats", action="store_true", help="Keep statistics and fingerprints only, not the values")
    parser.add_argument(
        "--include", action="append", default=[], metavar="GLOB", help="Only modules whose path matches"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="No modules whose path matches")
    parser.add_argument("--every", type=_positive, default=1, metavar="N", help="Only each N-th step")
    parser.add_argument("--steps", type=_steps, default=(0, None), metavar="A:B", help="Only steps A to B-1")
    parser.add_argument(
        "--max-bytes", type=_size, default=0, metavar="SIZE", help="A budget for each process: 500M, '2 GB'"
    )
    parser.add_argument("--no-sources", action="store_true", help="Do not keep the text of the code that is recorded")
    parser.add_argument(
        "--ops",
        action="append",
        default=[],
        type=_where_of_ops,
        metavar="WHERE",
        help="Every torch operation inside modules whose path matches; :data, :loss, :optimizer: around them; :all",
    )
    parser.add_argument("--ops-steps", type=_steps, default=(0, None), metavar="A:B", help="Operations of these steps")
    parser.add_argument("--ops-call", type=int, metavar="N", help="Operations of this call of the modules")
    keeps = parser.add_mutually_exclusive_group()
    keeps.add_argument("--ops-stats", action="store_true", help="Statistics only of what operations return")
    keeps.add_argument("--ops-values", action="store_true", help="What operations return in full, also with --stats")
    parser.add_argument("--eager", action="store_true", help="Run what torch.compile compiles as plain Python")
    parser.add_argument("--oracle", metavar="MODULE", help="Make a call of this module once more, in a wider type")
    parser.add_argument("--oracle-call", type=int, default=0, metavar="N", help="Which call of it (default: 0)")
    parser.add_argument("--end-after", type=int, metavar="STEP", help="End the program when this step is over")
    parser.add_argument(
        "--noise", type=_positive, metavar="N", help="Then run it N times again and measure how much rounding moves"
    )
    parser.add_argument("--move", type=int, metavar="SEED", help="Move parameters and inputs by half a unit at random")
    parser.add_argument("--other-kernels", action="store_true", help="Compute attention by torch's other kernels")
    against = parser.add_argument_group("Compare with an earlier run while it runs")
    against.add_argument("--against", metavar="RUN", help="The reference; what is equal is kept without its values")
    where = against.add_mutually_exclusive_group()
    where.add_argument("--stop", action="store_true", help="Where they part: report, and end (default)")
    where.add_argument("--pdb", action="store_true", help="Where they part: a debugger, with both tensors as a and b")
    where.add_argument("--keep-going", action="store_true", help="Report at the end")
    against.add_argument("--prefix", action="store_true", help="Ending earlier than the reference is no difference")
    against.add_argument("--tolerance", type=float, metavar="X", help="Largest harmless difference, as of diff")
    onnx = parser.add_argument_group("An ONNX model, run by ONNX Runtime")
    onnx.add_argument("--onnx", metavar="MODEL", help="The model; --include and --exclude are for names of tensors too")
    onnx.add_argument(
        "--inputs", action="append", default=[], metavar="[NAME=]FILE", help=".npz, .safetensors, or .npy for one input"
    )
    onnx.add_argument("--chunk", type=_positive, metavar="N", help="At most N tensors at a time, a run for each part")
    onnx.add_argument("--optimised", action="store_true", help="The graph as ONNX Runtime optimises it")
    return parser


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our words and the program's: it begins at the first that is not ours, or at -m."""
    takes_value = {"--out", "--name", "--python", "--include", "--exclude", "--every", "--steps", "--max-bytes"}
    takes_value |= {"--ops", "--ops-steps", "--ops-call", "--oracle", "--oracle-call", "--end-after"}
    takes_value |= {"--onnx", "--inputs", "--chunk"}
    takes_value |= {"--against", "--tolerance", "--noise", "--move"}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--"):
        at += 2 if words[at] in takes_value else 1
    return words[:at], words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]


def _run_script(path: str, arguments: list[str]) -> None:
    sys.argv[:] = [path, *arguments]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path.insert(0, path)
        sys.modules["__main__"] = types.ModuleType("__main__")
        runpy._run_module_as_main("__main__", alter_argv=False)
        return
    with io.open_code(os.path.abspath(path)) as file:
        source = file.read()
    full = os.path.abspath(path)
    code = compile(source, full, "exec", dont_inherit=True)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=full,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", full),
        __package__=None,
        __cached__=None,
    )
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _run_module(name: str) -> None:
    sys.modules["__main__"] = types.ModuleType("__main__")
    runpy._run_module_as_main(name)


def _run_onnx(parser: argparse.ArgumentParser, options: argparse.Namespace, program: list[str]) -> None:
    if program:
        parser.error(f"--onnx is instead of a script: what is {program[0]!r}?")
    if options.against:
        parser.error("--against is for scripts: record the model, then tenscope diff")
    if options.every != 1 or options.steps != (0, None):
        parser.error("--every and --steps are for scripts: a model is called once")
    try:
        from tenscope.onnx import command

        folder = command.run(options)
    except (Error, ImportError) as error:
        sys.exit(command_line.trouble(error, False))
    if not announce.is_quiet():
        say(f"recorded into {shown_path(folder)}; next: tenscope ls {shown_path(folder)}")


def main(words: list[str]) -> None:
    parser = _parser()
    ours, program = split(words)
    if program[:1] == ["-m"] and len(program) == 1:
        parser.error("-m needs the name of a module")
    options = parser.parse_args(ours)
    if not program and not options.onnx:
        parser.error("which script?")
    if options.python and not _is_this_python(options.python):
        _become(options.python, words)
    if options.replace and not options.name:
        parser.error("--replace needs the --name of the run that is to be replaced")
    if options.onnx:
        _run_onnx(parser, options, program)
        return
    if options.inputs or options.chunk or options.optimised:
        parser.error("--inputs, --chunk and --optimised go with --onnx")
    if options.eager:
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # read when torch is imported, by the processes it starts, too
    is_module = program[0] == "-m"
    trouble = "" if is_module else _why_not(program[0])
    if trouble:
        parser.error(f"cannot run the script: {trouble}: {program[0]}")
    if options.noise and ranks.here()[1] > 1:
        parser.error("--noise is not for one of several ranks: record them, then tenscope noise RUN")
    if options.noise and options.against:
        parser.error("--noise does not go with --against, which keeps no values")
    if options.against:
        options.against = _reference(parser, options)
    elif options.stop or options.pdb or options.keep_going or options.prefix or options.tolerance is not None:
        parser.error("--stop, --pdb, --keep-going, --prefix and --tolerance go with --against")
    try:
        folder = autorun.choose_folder(options.out, options.name, options.replace)
    except (Error, OSError) as error:
        parser.error(str(error))
    autorun.arm(
        folder,
        Options(
            stats=options.stats,
            include=options.include,
            exclude=options.exclude,
            every=options.every,
            first_step=options.steps[0],
            end_step=options.steps[1],
            max_bytes=options.max_bytes,
            sources=not options.no_sources,
            ops=options.ops,
            ops_first_step=options.ops_steps[0],
            ops_end_step=options.ops_steps[1],
            ops_call=options.ops_call,
            ops_values="stats" if options.ops_stats or (options.stats and not options.ops_values) else "full",
            oracle=options.oracle,
            oracle_call=options.oracle_call,
            move=options.move,
            other_kernels=options.other_kernels,
            end_after=options.end_after,
            against=options.against or "",
            on_divergence="pdb" if options.pdb else "keep" if options.keep_going else "stop",
            prefix=options.prefix,
            tolerance=options.tolerance,
        ),
        noise=options.noise or 0,
    )
    try:
        if is_module:
            sys.argv[:] = ["-m", *program[2:]]
            if not _is_found(program[1]):
                autorun.disarm()
                parser.error(f"cannot run the module: there is no module named {program[1]}")
            _run_module(program[1])
        else:
            _run_script(program[0], program[1:])
    except SystemExit as error:
        autorun.ended(error)
        raise
    except BaseException as error:
        autorun.ended(error)
        autorun.quiet_exit_of(error)
        if isinstance(error, KeyboardInterrupt) and not is_module:
            _die_of_interrupt()
        raise


def _reference(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The folder of the run to compare with, found before there is a newer one."""
    from tenscope.comparing.against import resolve

    try:
        reference = resolve(command_line.place_of(options.against))
    except Error as error:
        parser.error(str(error))
    if (
        options.name
        and options.replace
        and os.path.realpath(os.path.join(options.out, options.name)) == str(reference.resolve())
    ):
        parser.error(f"--replace would remove the run that is compared with: {options.against}")
    return str(reference)


def _is_this_python(python: str) -> bool:
    """By its path: the interpreters of virtual environments are links to one file."""
    return os.path.abspath(shutil.which(python) or python) == os.path.abspath(sys.executable)


def _become(python: str, words: list[str]) -> None:
    at = next(i for i, word in enumerate(words) if word.partition("=")[0] == "--python")
    rest = words[:at] + words[at + (1 if "=" in words[at] else 2) :]
    try:
        os.execvp(python, [python, "-m", "tenscope.run", *rest])
    except OSError as error:
        sys.exit(command_line.trouble(f"cannot start Python: {error.strerror}: {python}", False))


def _why_not(path: str) -> str:
    """Why a script cannot be run; empty where it can be read."""
    if not os.path.exists(path):
        return "no such file"
    if os.path.isdir(path):
        return "" if os.path.isfile(os.path.join(path, "__main__.py")) else "a folder without a __main__.py"
    try:
        with open(path, "rb"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _is_found(module: str) -> bool:
    """Whether there is such a module. Packages above it are imported, as they would be by running it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return False
        raise
    except (ValueError, AttributeError):
        return True  # running it will tell


def _die_of_interrupt() -> None:
    """As Python ends a script: whoever waits for the process sees that a signal ended it."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
