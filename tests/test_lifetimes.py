"""What Python code that runs in the middle of a record or a look may do: close the run, open another, fork, throw, end
the watch. And nothing that was recorded is held afterwards."""

# ruff: noqa: F841  (what is assigned is watched)

import ctypes
import dataclasses
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import tenscope
from tenscope import _core
from tenscope.lines.watch import watch, watching
from tenscope.recording import registry


class Acts:
    """An object that does something when it is turned into text: as a name, a key or an old value."""

    def __init__(self, act):
        self.act = act

    def __str__(self):
        self.act()
        return "acted"

    __repr__ = __str__


class Converted:
    def __init__(self, act):
        self.act = act


class ActsAsInt(int):
    """A scalar, so that it is kept and its repr is asked for when it changes."""

    act = None

    def __repr__(self):
        if self.act is not None:
            self.act()
        return "acted"


@pytest.fixture(autouse=True)
def clean():
    tenscope.register(Converted, to_value=lambda c: (c.act(), {"x": 1})[1])
    yield
    tenscope.close()
    for table in (registry._entries, registry._to_value):
        table.clear()


def drop_the_run():
    """Ends the current run with its last reference."""
    tenscope.close()
    gc.collect()


def reopen(folder):
    def act():
        drop_the_run()
        tenscope.init(folder, metadata=False)

    return act


def closes(folder):
    return tenscope.close


def drops(folder):
    return drop_the_run


def does_so_in_a_thread(folder):
    def act():
        thread = threading.Thread(target=reopen(folder))
        thread.start()
        thread.join()

    return act


WAYS = {
    "name": lambda act: tenscope.record(Acts(act), 1),
    "key": lambda act: tenscope.record("x", {"a": 1, Acts(act): np.ones(3), "b": [2.5]}),
    "converter": lambda act: tenscope.record("x", [Converted(act), np.ones(300_000), "text"]),
    "property": lambda act: tenscope.record("x", with_property(act)),
    "meta": lambda act: tenscope.record("x", 1, meta=JsonLike(act)),
    "change": lambda act: change(act),
    "hook": lambda act: hooked(act),
}


class JsonLike(dict):
    def __init__(self, act):
        super().__init__(a=1)
        self.act = act

    def items(self):
        self.act()
        return super().items()


def with_property(act):
    @dataclasses.dataclass
    class Has:
        first: int
        second: int = 2

        def __getattribute__(self, name):
            if name == "first":
                act()
            return object.__getattribute__(self, name)

    return Has(1)


def change(act):
    @watch("x", "y")
    def f():
        x = ActsAsInt(1)
        x.act = act
        x = np.arange(3)
        y = {"k": Converted(act)}
        x = 5

    f()


def hooked(act):
    @watch("x", hook=lambda change: act())
    def f():
        x = 1
        x = [2]
        x = 3

    f()


@pytest.mark.parametrize("does", [closes, drops, reopen, does_so_in_a_thread])
@pytest.mark.parametrize("way", WAYS)
def test_the_run_may_end_in_the_middle(tmp_path, way, does):
    for _ in range(5):
        tenscope.init(tmp_path, metadata=False)
        WAYS[way](does(tmp_path))
        tenscope.close()
    for run in _core.list_runs(tmp_path):
        assert not tenscope.open(run).problems
    tenscope.init(tmp_path, metadata=False)
    tenscope.record("after", 1)
    path = tenscope.current().path
    tenscope.close()
    assert tenscope.open(path)["after"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_the_same_where_freed_memory_is_overwritten():
    what = "end_in_the_middle or last_reference or many_threads"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", __file__, "-k", what]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_run_of_its_own_may_lose_its_last_reference(tmp_path):
    runs = [tenscope.Run(tmp_path, metadata=False)]
    record = runs[0].record
    record({Acts(runs.clear): 1, "name": 2}, 1)
    del record
    _core.Run(tmp_path).record("x", [Converted(gc.collect), Acts(gc.collect)])


def test_a_run_that_was_not_made_is_said():
    with pytest.raises(RuntimeError, match="__init__"):
        _core.Run.__new__(_core.Run).record("x", 1)


def test_records_of_many_threads_while_runs_come_and_go(tmp_path):
    stop = threading.Event()
    large = np.ones(200_000)

    def work(n):
        while not stop.is_set():
            tenscope.record(f"w{n}", {"large": large, "c": Converted(lambda: None), Acts(lambda: None): n})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        tenscope.init(tmp_path, metadata=False)
        drop_the_run()
    stop.set()
    for thread in threads:
        thread.join()
    for run in _core.list_runs(tmp_path):
        assert not tenscope.open(run).problems


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_in_the_middle(tmp_path):
    children = []

    def fork():
        children.append(os.fork())

    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("before", 1)
    tenscope.record("x", {Acts(fork): 1, "b": np.ones(2)})
    if children[0] == 0:
        tenscope.close()
        os._exit(0)
    assert os.waitpid(children[0], 0)[1] == 0
    tenscope.close()
    back = tenscope.open(run.path)
    assert not back.problems
    assert sorted(e.rank for e in back.find("x.acted")) == [0, 0] and len(back.find("x.b")) == 2


def test_interrupting_a_record_interrupts_the_program(tmp_path):
    def interrupt():
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):  # the handler runs here
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    tenscope.init(tmp_path, metadata=False)
    try:
        with pytest.raises(KeyboardInterrupt):
            tenscope.record("x", {Acts(interrupt): 1})
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_converter_that_gives_its_own_kind_ends(tmp_path):
    tenscope.register(Converted, to_value=lambda c: Converted(c.act))
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", Converted(None))
    tenscope.close()
    assert "Converted" in tenscope.open(run.path)["x"]


def test_a_converter_may_replace_itself(tmp_path):
    class Once:
        def __init__(self, n):
            self.n = n

        def __call__(self, c):
            tenscope.register(Converted, to_value=Once(self.n + 1))
            gc.collect()
            return self.n

    tenscope.register(Converted, to_value=Once(1))
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", [Converted(None), Converted(None)])
    tenscope.close()
    assert tenscope.open(run.path)["x"] == [1, 2]


def test_what_failed_is_counted_and_said_in_the_run(tmp_path):
    def fail():
        raise RuntimeError("no text")

    run = tenscope.init(tmp_path, metadata=False)
    with pytest.warns(tenscope.RecordingWarning, match="no text"):
        tenscope.record("x", {"a": 1, Acts(fail): 2})
    assert run.dropped == 1
    tenscope.close()
    (note,) = tenscope.open(run.path).find("not_seen")
    assert note.meta["name"] == "x" and "no text" in note.meta["reason"]


def test_a_dict_that_changes_while_it_is_recorded(tmp_path):
    grows = {}
    grows.update({"a": 1, Acts(lambda: grows.update({f"new{i}": i for i in range(100)})): 2})
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", grows)
    tenscope.close()
    reasons = [note.meta["reason"] for note in tenscope.open(run.path).find("not_seen")]
    assert any("changed while" in reason for reason in reasons)


def test_a_field_that_cannot_be_read_is_said(tmp_path):
    def fail():
        raise ValueError("broken field")

    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", with_property(fail))
    tenscope.close()
    back = tenscope.open(run.path)
    assert back["x.second"] == 2
    assert ["broken field" in note.meta["reason"] for note in back.find("not_seen")] == [True]


# The watch itself may end in the middle of a look.


@pytest.mark.parametrize("again", [False, True])
def test_a_hook_may_end_its_own_block(again):
    seen = []

    def hook(change):
        seen.append(change.new)
        if change.new == 2:
            block.__exit__(None, None, None)
            if again:
                with watching("change"):  # a hook is not watched
                    change = None
            gc.collect()

    x = [0]
    block = watching("x", "y", hook=hook)
    block.__enter__()
    y = 1
    x = 2
    y = 3
    x = [4]
    assert seen[-1] == 2 and 3 not in seen and [4] not in seen


def test_hooks_end_all_blocks_of_a_frame_at_once():
    blocks = []

    def hook(change):
        while blocks:
            blocks.pop().__exit__(None, None, None)

    for _ in range(3):
        blocks.append(watching("x", hook=hook))
        blocks[-1].__enter__()
    x = [1]
    x = [2]
    x = [3]
    assert not blocks


# Nothing is held.


class Capsules(ctypes.Structure):
    """A DLManagedTensor whose deleter counts."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def test_a_dlpack_capsule_is_given_back(tmp_path):
    made, deleted = [], []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda p: deleted.append(p))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def destructor(capsule):  # as torch's: an unused tensor is deleted with its capsule
        address = pointer(capsule, b"dltensor")
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(Capsules.from_address(address).deleter)(address)

    class OnlyDlpack:
        def __init__(self, array):
            self.array, self.shape = array, (ctypes.c_int64 * 1)(array.size)

        def __dlpack__(self, **_):
            tensor = Capsules(self.array.ctypes.data, 1, 0, 1, 2, 32, 1, ctypes.addressof(self.shape), None, 0, None)
            tensor.deleter = ctypes.cast(deleter, ctypes.c_void_p)
            made.append(tensor)
            return new(ctypes.addressof(tensor), b"dltensor", ctypes.cast(destructor, ctypes.c_void_p))

    value = OnlyDlpack(np.arange(4, dtype=np.float32))
    held = sys.getrefcount(value)
    run = tenscope.init(tmp_path, metadata=False)
    for _ in range(10):
        tenscope.record("x", value)
        tenscope.record("nest", [value, value])
    tenscope.close()
    assert len(made) == len(deleted) == 30 and sys.getrefcount(value) == held
    assert tenscope.open(run.path)["x", 0].tolist() == [0, 1, 2, 3]


OLD_TORCH = """
import gc, sys, types, weakref
import numpy as np

class Tensor:  # of a torch without DLPack's C exchange API
    def __init__(self, array): self.array = array
    def detach(self): return Tensor(self.array)
    def cpu(self): return self
    resolve_conj = resolve_neg = cpu
    def storage_offset(self): return 0
    def __dlpack__(self, **_): return self.array.__dlpack__()

torch = types.ModuleType("torch")
torch.Tensor, torch._C = Tensor, types.SimpleNamespace(TensorBase=Tensor)
sys.modules["torch"] = torch
import tenscope

class Array(np.ndarray): pass

run = tenscope.init(sys.argv[1], metadata=False)
alive = []
for i in range(60):
    array = np.full(1 << 17, i, np.float64).view(Array)
    alive.append(weakref.ref(array))
    tenscope.record("x", Tensor(array))
    tenscope.record("nest", {"a": [Tensor(array)]})
    del array
gc.collect()
tenscope.close()
back = tenscope.open(run.path)
assert [float(e.value[0]) for e in back.find("x")] == list(range(60))
print(sum(ref() is not None for ref in alive))
"""


def test_tensors_of_a_torch_without_the_exchange_api_are_not_held(tmp_path):
    result = subprocess.run([sys.executable, "-c", OLD_TORCH, tmp_path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "0"


def test_torch_tensors_are_not_held(tmp_path):
    torch = pytest.importorskip("torch")
    tenscope.init(tmp_path, metadata=False)
    tensors = [torch.ones(3), torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3).to_sparse(), torch.ones(3)[1:]]
    alive = [weakref.ref(t) for t in tensors]
    tenscope.record("x", tensors)
    tenscope.close()
    tensors.clear()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 4


# Addresses that are none.


def wrapper(torch, offset, **options):
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("the recorder is not to be seen")

    return torch.Tensor._make_wrapper_subclass(Wrapper, (4,), strides=(1,), storage_offset=offset, **options)


@pytest.mark.parametrize("offset", [0, 1, 32, 4096, 1 << 24, 1 << 34])
def test_a_wrapper_without_storage_is_never_read(tmp_path, offset):
    torch = pytest.importorskip("torch")
    values = {"w": wrapper(torch, offset), "bf16": wrapper(torch, offset, dtype=torch.bfloat16)}
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", values)

    @watch("w")
    def f(w):
        w = None
        return w

    f(values["w"])
    tenscope.close()
    assert _core.fingerprint(values["w"]) is None
    back = tenscope.open(run.path)
    for name in values:
        assert "storage" in back.event(f"x.{name}").meta["unsupported"]


def test_views_with_an_offset_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", torch.arange(100.0)[32:36])
    tenscope.close()
    assert tenscope.open(run.path)["x"].tolist() == [32, 33, 34, 35]


def test_arrays_whose_copy_is_no_better(tmp_path):
    class Stubborn(np.ndarray):
        def astype(self, *args, **kwargs):
            return self

        def view(self, *args, **kwargs):
            return self

    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", np.ndarray.view(np.arange(4, dtype=">f4"), Stubborn))
    tenscope.record("y", np.ndarray.view(np.array([object()]), Stubborn))
    tenscope.close()
    back = tenscope.open(run.path)
    assert back.event("x").meta["unsupported"] and back.event("y").meta["unsupported"]


# Limits are said.


def test_what_a_digest_leaves_out_is_noted_in_the_run(tmp_path):
    run = tenscope.init(tmp_path, metadata=False)

    @watch("deep", "many", max_changes=5)
    def f():
        deep = [0]
        for _ in range(70):
            deep = [deep]
        many = list(range(1_000_001))
        many[-1] = -1

    f()
    tenscope.close()
    notes = {note.meta["name"]: note.meta["reason"] for note in tenscope.open(run.path).find("not_seen", kind="note")}
    assert "deeper than 64" in notes["deep"] and "unseen" in notes["deep"]
    assert "1000000 items" in notes["many"]


def test_what_a_digest_leaves_out_is_warned_of_without_a_run():
    @watch("many")
    def f():
        many = set(range(1_000_001))

    with pytest.warns(tenscope.RecordingWarning, match=r"many in .*unseen"):
        f()


def test_a_snapshot_marks_what_it_lacks():
    long = _core.snapshot(list(range(70_000)))
    assert len(long) == 65_537 and repr(long[-1]) == "… 4464 more" and long[-1].count == 4464
    named = _core.snapshot({i: i for i in range(65_539)})
    assert repr(named["…"]) == "… 3 more"
    loop = [1]
    loop.append({"loop": loop})
    assert "a cycle" in _core.snapshot(loop)[1]["loop"]
    deep = []
    for _ in range(100):
        deep = [deep]
    assert "nested deeper than 64 levels" in repr(_core.snapshot(deep))


def test_a_long_list_is_shown_with_its_length(capsys):
    @tenscope.tree
    def f(x):
        return x

    f(list(range(70_000)))
    assert "list of 70000: int" in capsys.readouterr().err


# TENSCOPE_STRICT has one meaning.


@pytest.mark.parametrize("value, strict", [("", False), ("0", False), ("1", True), ("yes", True), (None, False)])
def test_strict_by_environment(tmp_path, monkeypatch, value, strict):
    monkeypatch.delenv("TENSCOPE_STRICT", raising=False)
    if value is not None:
        monkeypatch.setenv("TENSCOPE_STRICT", value)
    assert _core.is_strict() is strict
    assert tenscope.Run(tmp_path, metadata=False).strict is strict


def test_a_strict_run_is_strict(tmp_path, monkeypatch):
    monkeypatch.delenv("TENSCOPE_STRICT", raising=False)
    assert not _core.is_strict()
    with tenscope.Run(tmp_path, strict=True):
        assert _core.is_strict()
    assert not _core.is_strict()


def hook_that_fails(change):
    raise LookupError("hook is broken")


def test_strict_raises_what_goes_wrong_in_a_hook(monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "1")
    reached = []

    @watch("x", hook=hook_that_fails)
    def f():
        x = [1]
        reached.append(1)
        return x

    with pytest.raises(LookupError, match="hook is broken"):
        f()
    assert not reached

    @watch("y", hook=hook_that_fails)
    def at_the_end():
        y = [1]

    with pytest.raises(LookupError, match="hook is broken"):
        at_the_end()

    @watch("z", hook=hook_that_fails)
    def generator():
        z = [1]
        yield z
        yield 2

    with pytest.raises(LookupError, match="hook is broken"):
        list(generator())
    monkeypatch.setenv("TENSCOPE_STRICT", "0")
    assert f() == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_strict_lets_the_programs_own_error_go_first(monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "1")
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: unraisable.append(told.exc_value))

    @watch("x", hook=lambda change: change.first or hook_that_fails(change))
    def f(x):
        x[0] = 1 / (x.append(1) or 0)

    with pytest.raises(ZeroDivisionError):
        f([0])
    assert [str(error) for error in unraisable] == ["hook is broken"]


def test_strict_raises_what_goes_wrong_in_recording_a_change(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "1")
    tenscope.register(Converted, to_value=lambda c: 1 / 0)
    tenscope.init(tmp_path, metadata=False)

    @watch("x")
    def f():
        x = {"a": Converted(None)}
        return x

    with pytest.raises(ZeroDivisionError):
        f()
    with pytest.raises(ZeroDivisionError):
        tenscope.record("x", Converted(None))


def test_strict_in_a_tree(monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "yes")

    class Broken:
        def write(self, text):
            raise LookupError("broken stream")

    @tenscope.tree(show=Broken())
    def f():
        return 1

    with pytest.raises(LookupError):
        f()
