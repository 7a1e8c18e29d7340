"""Memory that the recorder borrows: it is given back, nothing that was recorded is held afterwards, and an address that
is none is not read."""

import ctypes
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import tenscope
from tenscope import _core
from tenscope.lines.watch import watch


@pytest.fixture(autouse=True)
def closed():
    yield
    tenscope.close()


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
