"""The native core of tenscope."""

from collections.abc import Callable, Iterable, Sequence
import os
import pathlib
import types

import numpy


from typing import Any, Literal

_Kind = Literal["value", "enter", "exit", "change", "step", "note", "dropped"]

version: str = '0.1.0'

class Against:
    """A finished recording that another is compared with while it is made."""

    def __init__(self, reference: str | os.PathLike, rank: int, tolerance: float | None) -> None: ...

    @property
    def reference(self) -> pathlib.Path: ...

    @property
    def has_rank(self) -> bool: ...

    def __len__(self) -> int: ...

    @property
    def suspicion(self) -> str:
        """
        The gravest that was seen since it was last taken: "differs", "bits" or nothing.
        """

    def take(self) -> str: ...

    def excuse(self) -> None:
        """What was suspected so far is harmless."""

    @property
    def counts(self) -> dict: ...

class Run:
    """A recording; see tenscope.Run."""

    def __init__(self, base: str | os.PathLike, *, name: str = '', rank: int = 0, world_size: int = 1, durability: str = 'process', max_bytes: int = 0, keep: str = 'first', values: str = 'full', segment_bytes: int = 0, strict: bool = False, join: bool = False) -> None: ...

    def step(self, number: int | None = None) -> int:
        """
        Begins the next step, or the one of that number, and returns its number.
        """

    def set_against(self, against: Against | None) -> None:
        """
        Compares what is recorded from now on with a recording; None: no longer.
        """

    def enable(self) -> None:
        """Goes on recording."""

    def disable(self) -> None:
        """Stops recording until enable()."""

    def flush(self) -> None:
        """
        With durability="disk": all that was recorded so far is on the disk when it returns.
        """

    def close(self) -> None:
        """Seals the open segments and ends the journal. May be called again."""

    @property
    def enabled(self) -> bool:
        """Whether it records now."""

    @property
    def current_step(self) -> int:
        """The number of the step."""

    @property
    def path(self) -> pathlib.Path:
        """The run's folder."""

    @property
    def writer_path(self) -> pathlib.Path:
        """This process' folder in it."""

    @property
    def dropped(self) -> int:
        """How many events were lost."""

    @property
    def spent_ns(self) -> int:
        """The time that recording them took, by all threads together."""

    def on_code(self, call: object) -> None:
        """Has it called with a code object that records, the first of each file."""

    @property
    def strict(self) -> bool:
        """Whether what goes wrong raises."""

    def record(
        self,
        name: object,
        value: Any = ...,
        *,
        kind: _Kind | None = None,
        step: int | None = None,
        call: int | None = None,
        site: str | None = None,
        scope: str | None = None,
        io: str | None = None,
        phase: str | None = None,
        root: str | None = None,
        cls: str | None = None,
        task: str | None = None,
        meta: dict[str, Any] | str | None = None,
        inputs: list[str] | tuple[str, ...] | None = None,
        file: str | None = None,
        values: Literal["full", "stats"] = "full",
    ) -> None:
        """The same into this run."""

def record(
    name: object,
    value: Any = ...,
    *,
    kind: _Kind | None = None,
    step: int | None = None,
    call: int | None = None,
    site: str | None = None,
    scope: str | None = None,
    io: str | None = None,
    phase: str | None = None,
    root: str | None = None,
    cls: str | None = None,
    task: str | None = None,
    meta: dict[str, Any] | str | None = None,
    inputs: list[str] | tuple[str, ...] | None = None,
    file: str | None = None,
    values: Literal["full", "stats"] = "full",
) -> None:
    """
    Records a tensor, array, number, text, None or any nest of them under a name.

    Without a run and while disabled it does nothing, so calls may stay in the code. What goes wrong in it is a
    RecordingWarning, never an error in the program. docs/python.md says what becomes of each type of value.

    step, call   its place, where the run's own count is not meant
    site         "file.py:12"; the calling line by default
    io, phase    what it is: "param", "input", "output" ...; "init", "forward", "backward", "optimizer"
    scope, root  the module or function that it belongs to, and the outermost one
    kind         "value", or "note" for what is about the run itself
    cls, task    the class of the module; the asyncio task
    meta         a dict of anything else
    inputs       names of the values that it was made of, for the comparison of two engines (docs/engines.md)
    values       "stats" keeps statistics, fingerprint and sketch without the bytes
    """

def set_suspicion_handler(handler: object | None) -> None:
    """
    Called without arguments by a record whose value differs from the run's reference.
    """

def set_registered(types: dict) -> None: ...

def is_strict() -> bool:
    """
    Whether what goes wrong in the recorder raises: TENSCOPE_STRICT or a strict run.
    """

def forget_codes() -> None:
    """
    Every file of a code object that records is news again: in a forked child.
    """

def set_run_opener(opener: object | None) -> None:
    """
    Called with False where a program wants to record and no run is current, with True where it steps.
    """

def set_current(run: Run | None) -> None: ...

def step(number: int | None = None) -> int | None:
    """
    Begins the next step of the current run, or the one of that number, and returns its number.

    What is recorded from now on belongs to that step. None where no run is open.
    """

def enable() -> None:
    """Goes on recording into the current run, after disable()."""

def disable() -> None:
    """
    Stops recording into the current run until enable(). A call of record costs next to nothing then.
    """

def close_runs_on_sigterm() -> bool:
    """
    From now on SIGTERM closes open runs before it ends the process; False where the program handles it itself.
    """

class TensorRecord:
    """What an event tells of a tensor."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def device(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def stats(self) -> dict[str, int | float]: ...

    @property
    def has_bytes(self) -> bool: ...

    @property
    def segment(self) -> int | None: ...

    @property
    def offset(self) -> int | None: ...

class EventRecord:
    """One event as the journal has it."""

    @property
    def seq(self) -> int: ...

    @property
    def time_ns(self) -> int: ...

    @property
    def thread(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def call(self) -> int: ...

    @property
    def site(self) -> str: ...

    @property
    def scope(self) -> str: ...

    @property
    def io(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def root(self) -> str: ...

    @property
    def cls(self) -> str: ...

    @property
    def task(self) -> str: ...

    @property
    def meta(self) -> str: ...

    @property
    def has_value(self) -> bool: ...

    @property
    def value(self) -> bool | int | float | str | None: ...

    @property
    def tensor(self) -> TensorRecord | None: ...

class Problem:
    """Damage or a gap found while reading."""

    @property
    def file(self) -> pathlib.Path: ...

    @property
    def offset(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def is_loss(self) -> bool: ...

    def __repr__(self) -> str: ...

class Loss:
    """What a writer did not keep, by reason."""

    @property
    def writer(self) -> str: ...

    @property
    def events(self) -> int: ...

    @property
    def tensors(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def is_limit(self) -> bool: ...

    @property
    def is_exact(self) -> bool: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class SourceFile:
    """A source file of the program, as a writer of the run met it."""

    @property
    def file(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def left_out(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def line_count(self) -> int: ...

    @property
    def event(self) -> int: ...

class WriterInfo:
    """One folder of a run: who wrote it and how it ended."""

    @property
    def folder(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    @property
    def repaired(self) -> bool: ...

    @property
    def running(self) -> bool: ...

    @property
    def event_count(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    @property
    def exception(self) -> str: ...

    @property
    def exception_message(self) -> str: ...

    @property
    def failed(self) -> bool: ...

IO_WORDS: tuple = ...

PHASE_WORDS: tuple = ('init', 'forward', 'backward', 'optimizer')

NOTE_NAMES: tuple = ...

GRADIENT_SUFFIX: str = '.grad'

CHANGED_INPUT_SUFFIX: str = '.after'

class Reader:
    """The journals of a run and its mapped tensors; see tenscope.open."""

    def __init__(self, path: str | os.PathLike) -> None: ...

    @property
    def path(self) -> pathlib.Path: ...

    @property
    def run_json(self) -> str: ...

    @property
    def writers(self) -> list[WriterInfo]: ...

    @property
    def problems(self) -> list[Problem]: ...

    @property
    def losses(self) -> list[Loss]: ...

    def __len__(self) -> int: ...

    def event(self, id: int) -> EventRecord: ...

    def kind(self, id: int) -> str: ...

    def name(self, id: int) -> str: ...

    def step(self, id: int) -> int: ...

    def call(self, id: int) -> int: ...

    def writer(self, id: int) -> int: ...

    def writer_of(self, id: int) -> WriterInfo: ...

    def is_tensor(self, id: int) -> bool: ...

    def find(self, name: str = '', step: int | None = None, call: int | None = None, rank: int | None = None, kind: str | None = None) -> list[int]: ...

    def names(self) -> list[str]: ...

    def steps(self, name: str = '') -> list[int]: ...

    def sketch(self, id: int) -> tuple[float, ...] | None:
        """
        The 64 signed sums of a tensor: as recorded, else from its bytes; None where neither is there.
        """

    def sources(self) -> list[SourceFile]:
        """The sources that the run keeps, each content of each file once."""

    def source_text(self, fingerprint: str) -> bytes:
        """The text of one of them, UTF-8."""

    def whole(self, id: int) -> tuple[numpy.ndarray, str, tuple[int, ...]]:
        """
        The tensor that this event is one rank's part of: its bytes, dtype and shape.
        """

    def bytes(self, id: int) -> numpy.ndarray:
        """A tensor's bytes, zero-copy and read-only."""

def state_text(writers: Sequence[WriterInfo]) -> str:
    """
    How a run stands: running, closed, failed (ValueError), crashed, repaired or empty.
    """

def run_warnings(reader: Reader) -> list[str]:
    """What the command line warns of, a sentence each."""

def list_runs(folder: str | os.PathLike) -> list[pathlib.Path]:
    """All runs below a folder, oldest first."""

def verify(run: str | os.PathLike) -> list[Problem]:
    """Checks every checksum and fingerprint of a run; returns the problems."""

def repair(run: str | os.PathLike) -> list[str]:
    """Seals what a crash left open; returns what it did."""

def arrow_stream(reader: Reader, name: str = '', begin: int | None = None, end: int | None = None, call: int | None = None, rank: int | None = None, requested: object | None = None) -> object:
    """
    Events of the steps [begin, end) as a capsule of Arrow's C stream interface.
    """

def arrow_schema() -> object:
    """Its schema, as a capsule."""

def event_columns(reader: Reader, rank: int | None = None) -> list[dict[str, Any]]:
    """The events in batches of columns: arrays of numbers, lists of objects."""

def diff_pairs(a: str, b: str, map: Sequence[str], tolerance: float | None, prefix: bool, ranks: Sequence[int], noise: str | None) -> tuple[list[tuple[bool, bool, int, float]], list[dict[str, Any]], list[dict[str, Any]]]:
    """
    What was said of each value and its partner: (is in a, is in b, PairVerdict, error), and both runs' events.
    """

def load_file(path: str, map: bool, verify_checksums: bool, max_inflated_bytes: int) -> object: ...

def save_file(path: str, object: object | None, compress: bool, metadata: Sequence[tuple[str, str]]) -> None: ...

def fingerprint(tensor: object | None) -> bytes | None:
    """
    The 16 bytes that identify a tensor's content, or None for what has none.
    """

def sample(tensor: object) -> int | None:
    """
    A number that differs where most elements of a tensor were changed; of a few of them only.
    """

def spy_listen(change: int) -> None: ...

def spy(name: str, value: Any, module: Any = None) -> None:
    """Records a value from inside a forward while a trace or a context is active; does nothing otherwise."""

class TensorValue:
    """
    A tensor as it was at a change: what it is, its statistics and, where kept, its bytes.
    """

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def device(self) -> str: ...

    @property
    def from_torch(self) -> bool: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def count(self) -> int: ...

    @property
    def min(self) -> float: ...

    @property
    def max(self) -> float: ...

    @property
    def mean(self) -> float: ...

    @property
    def std(self) -> float: ...

    @property
    def nan(self) -> int: ...

    @property
    def inf(self) -> int: ...

    @property
    def data(self) -> bytes | None:
        """The bytes in C order, or None where only statistics were kept."""

    def __repr__(self) -> str: ...

    def numpy(self) -> numpy.ndarray: ...
    def torch(self) -> Any: ...
    def tolist(self) -> list: ...
    def item(self) -> Any: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...

class LeftOut:
    """Stands in the copy of a nest for what is not in it."""

    @property
    def count(self) -> int:
        """How many items; 0 where it is not known."""

    @property
    def reason(self) -> str: ...

    def __repr__(self) -> str: ...

class Change:
    """One change of a watched expression."""

    @property
    def name(self) -> str: ...

    @property
    def old(self) -> object:
        """The value before; None at first sight."""

    @property
    def new(self) -> object: ...

    @property
    def first(self) -> bool:
        """Seen for the first time in this call."""

    @property
    def line(self) -> int:
        """The line that made the change."""

    @property
    def next_line(self) -> int:
        """The line about to run when it was seen."""

    @property
    def time_ns(self) -> int: ...

    @property
    def code(self) -> types.CodeType: ...

    @property
    def call(self) -> int: ...

    @property
    def function(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def thread(self) -> int: ...

    @property
    def task(self) -> str: ...

    def __repr__(self) -> str: ...

class Changes:
    """The changes of one call, in order: a sequence of Change."""

    def __len__(self) -> int: ...

    def __getitem__(self, arg: int, /) -> Change: ...

    @property
    def call(self) -> int:
        """How many calls came before, from 0."""

    @property
    def function(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def thread(self) -> int: ...

    @property
    def raised(self) -> bool:
        """The call ended by an exception."""

    @property
    def finished(self) -> bool: ...

    @property
    def left_out(self) -> int:
        """Changes beyond max_changes."""

    def __repr__(self) -> str: ...

    def frame(self) -> Any: ...

class Watcher:
    def __init__(self) -> None: ...

    def add(self, code: object, function: object | None = None) -> None:
        """
        Watches calls of this code object; only those of `function` where it is given.
        """

    def attach(self, frame: object) -> None:
        """Watches a running frame of this thread from now on."""

    def detach(self) -> None: ...

    def close(self) -> None:
        """Watches nothing any more; calls that run now are watched to their end."""

    def publish(self, attributes: dict) -> None:
        """After each call attributes['changes'] is its Changes."""

    @property
    def calls(self) -> int: ...

    @property
    def unseen(self) -> list:
        """The expressions that never had a value."""

    @property
    def last(self) -> Changes | None:
        """The Changes of the call that ended last, or None."""

def make_watcher(expressions: Iterable, options: dict) -> Watcher: ...

def set_describe(describe: Callable, own_folder: str) -> None: ...

def call_unwatched(arg0: Callable, /, *args) -> object:
    """Calls the function with nothing watched on this thread."""

def tracer_door() -> str: ...

def digest(value: object | None) -> tuple[int, int]:
    """Two numbers that are equal for values of equal content."""

def snapshot(value: object | None, max_tensor_bytes: int = 1024) -> object: ...

class PartialDiff:
    """What was found of some ranks of two runs."""

    @property
    def a(self) -> str: ...

    @a.setter
    def a(self, arg: str, /) -> None: ...

    @property
    def b(self) -> str: ...

    @b.setter
    def b(self, arg: str, /) -> None: ...

    @property
    def ranks(self) -> list[int]: ...

    def merge(self, other: PartialDiff) -> None:
        """Takes what was found of other ranks in."""

    def report(self, top: int, strict: bool) -> tuple[str, str, str]: ...

    def settled_report(self, a: str, b: str, map: Sequence[str], tolerance: float | None, prefix: bool, top: int, strict: bool, noise: str | None = '') -> tuple[str, str, str]:
        """The report where all ranks of both runs were compared."""

    def __getstate__(self) -> bytes: ...

    def __setstate__(self, arg: bytes, /) -> None: ...

def diff_some_ranks(a: str, b: str, ranks: Sequence[int], map: Sequence[str], tolerance: float | None, prefix: bool, noise: str | None = '') -> PartialDiff: ...

def are_laid_out_alike(a: str, b: str) -> bool:
    """Whether each rank of two runs can be compared with itself."""

def run_ranks(path: str) -> tuple[str, list[int]]:
    """
    The folder of the run that a path stands for, and the ranks that have a folder in it.
    """

class NoiseRun:
    """A program run again with other roundings."""

    @property
    def changes(self) -> list[str]: ...

    @property
    def compared(self) -> int: ...

    @property
    def moved(self) -> int: ...

    @property
    def missing(self) -> int: ...

    @property
    def initial_units(self) -> float: ...

class NoiseProfile:
    """How far each place of a program moves by rounding alone."""

    def __init__(self) -> None: ...

    @staticmethod
    def read(path: str | os.PathLike) -> NoiseProfile: ...

    def write(self, path: str | os.PathLike) -> None: ...

    def add(self, other: NoiseProfile) -> None: ...

    def __len__(self) -> int: ...

    @property
    def runs(self) -> list[NoiseRun]: ...

    def places(self) -> list:
        """How far each place moved."""

def diff_runs(a: str, b: str, map: Sequence[str], tolerance: float | None, top: int, strict: bool, prefix: bool, rows: Sequence[str], ranks: Sequence[int], progress: Callable | None, budget: bool = False, noise: str | None = '', color: bool = False, width: int = 80) -> tuple[str, str, str]: ...

def measure_noise(run: str, again: str, changes: Sequence[str]) -> NoiseProfile:
    """How far each place of a run moved when the same program was run again."""

def diff_operations(a: str, b: str, step: int | None, rank: int | None, called_a: str | None = None, called_b: str | None = None, color: bool = False) -> tuple[str, str]: ...

def judge_by_oracle(a: str, b: str, rank: int | None, color: bool = False) -> tuple[str, str]: ...

def fitted(text: str, width: int) -> str:
    """The lines of a report in the width of a terminal; 0: any width."""

def are_checkpoints(a: str, b: str) -> bool: ...

def diff_checkpoints(a: str, b: str, map: Sequence[str], top: int, width: int) -> tuple[str, str, str]: ...

def export_page(a: str, b: str, map: Sequence[str], tolerance: float | None, prefix: bool, rows: Sequence[str], ranks: Sequence[int], shown_a: str, shown_b: str, most_bytes: int, noise: str | None = '') -> str:
    """What `tenscope view` shows, as one page."""

class Side:
    """What one side of a comparison holds."""

def side_from_file(path: str) -> Side: ...

def side_from_object(object: object | None, reduce: object) -> Side: ...

def is_tensor_like(object: object | None) -> bool: ...

def is_loadable(path: str) -> bool: ...

def tensors_close(a: object, b: object, atol: float, rtol: float, equal_nan: bool) -> bool | None: ...

def sides_close(a: Side, b: Side, atol: float, rtol: float, equal_nan: bool) -> bool: ...

class ValueDiff:
    """How two values, files or folders differ; see tenscope.diff."""

    @property
    def is_different(self) -> bool: ...

    @property
    def is_single_tensor(self) -> bool: ...

    def text(self, top: int) -> str: ...

    def html(self, top: int) -> str: ...

    def json(self) -> str: ...

def diff_sides(a: Side, b: Side, atol: float | None, rtol: float | None, ulp: int | None, equal_nan: bool) -> ValueDiff: ...

def diff_paths(a: str, b: str, atol: float | None, rtol: float | None, ulp: int | None, equal_nan: bool) -> ValueDiff: ...

def explain(a: object, b: object) -> tuple[str, str, str, list[tuple[str, list[int], list[float], bool]]]: ...

def simd_target() -> str: ...

def nearest(word: str, candidates: Sequence[str], limit: int = 3) -> list[str]:
    """
    The candidates most like the word, best first; none where nothing is near.
    """

def printable(text: str) -> str:
    """
    A name as it can be shown in one line: what a terminal would obey is written out.
    """

class Fetching:
    """
    While entered, readers that are opened of runs in `folder` call fetch(file, offset, size) before they read, and keep it.
    """

    def __init__(self, folder: str | os.PathLike, fetch: Callable) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

def held_code(modules: list) -> list[int]:
    """
    For each module a number that is another one when it holds other functions, classes or code than before.
    """

def spy_active(name: str, value: Any, module: Any = None) -> None:
    """What spy hands on to while somebody listens; set by the Python package."""
