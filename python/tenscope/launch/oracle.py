"""A module's call once more in a wider type, beside the program: which of two runs is right? docs/zoom.md.

Overview. At the entry of the one call that is asked for, a deep copy of the module and of its arguments is widened
(float32 to float64, a half to float32) and called with the probes off, autocast off and the random numbers that the
program's own call is about to draw. A dispatch mode keeps the copy wide where the code itself asks for a narrower type
(`x.float()`, `torch.zeros(n)`). The program's module, arguments and generators are left as they were. At the exit of
the program's call what it returned is recorded beside what the copy returned.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import random
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tenscope import _core
from tenscope.probes.hooks import Members, flatten

_HALVES = {torch.float16, torch.bfloat16, *(getattr(torch, n) for n in dir(torch) if n.startswith("float8_"))}
_COMPLEX = {torch.float32: {torch.complex32: torch.complex64}, torch.float64: {torch.complex64: torch.complex128}}
_COMPLEX[torch.float64][torch.complex32] = torch.complex128


class CannotWiden(Exception):
    pass


class Oracle:
    """Looks at the calls of a probe's modules, and makes the one of `path` and `call` once more."""

    def __init__(self, probe, path: str, call: int):
        self._probe = probe
        self._path = "" if path == "." else path
        self._call = call
        self._oracle: Members | None = None
        self._digest = ""
        self._random: RandomState | None = None  # as the widened call left it

    def enter(self, frame, module, args, kwargs) -> None:
        if frame.info.path != self._path or frame.call != self._call:
            return
        try:
            self._digest = digest_of(module, args, kwargs)
            with self._aside():
                self._oracle = self._widened(module, args, kwargs)
        except CannotWiden as error:
            self._tell_reason(frame, str(error))
        except Exception as error:
            self._tell_reason(frame, f"{type(error).__name__}: {error}")

    def exit(self, frame, output) -> None:
        if self._oracle is None or frame.info.path != self._path or frame.call != self._call:
            return
        oracle, self._oracle = self._oracle, None
        if self._random is not None and not self._random.is_current():
            reason = "it draws random numbers, and the widened call drew others than the program's own"
            self._tell_reason(frame, reason)
            return
        computed = Members()
        flatten(output, "", [], computed)
        for word, members in (("computed", computed), ("oracle", oracle)):
            for suffix, _, value in members:
                if isinstance(value, torch.Tensor):
                    name = f"{word}.{suffix}" if suffix else word
                    self._record(frame, name, value.detach(), {"inputs": self._digest})

    def _tell_reason(self, frame, reason: str) -> None:
        self._record(frame, "oracle", reason, {"reason": reason[:500], "inputs": self._digest})

    def _record(self, frame, name: str, value, meta: dict) -> None:
        info = frame.info
        self._probe.record(
            f"{info.path}:{name}",
            value,
            io="oracle",
            phase="forward",
            site="",
            root=info.root.label,
            scope=info.path,
            cls=info.cls,
            call=frame.call,
            meta=json.dumps(meta),
            values="full",
        )

    @contextlib.contextmanager
    def _aside(self):
        """The probe sees nothing, and what the program would miss is put back."""
        before, default = RandomState(), torch.get_default_dtype()
        self._probe.is_aside = True
        try:
            yield
        finally:
            after = RandomState()
            self._random = after if after != before else None
            before.restore()
            torch.set_default_dtype(default)
            self._probe.is_aside = False

    def _widened(self, module, args, kwargs) -> Members:
        narrow, wide = dtypes_of(module, args, kwargs)
        with copying_made_tensors():
            twin, args, kwargs = copy.deepcopy((module, args, kwargs))
        check_is_apart(module, twin)
        widen_module(twin, wide)
        args, kwargs = tree_map(lambda x: widened(x, wide), (args, kwargs))
        if torch.finfo(torch.get_default_dtype()).bits < torch.finfo(wide).bits:
            torch.set_default_dtype(wide)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                stack.enter_context(torch.autocast(device, enabled=False))
            if hasattr(torch.compiler, "set_stance"):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(StayWide(narrow, wide))
            output = twin(*args, **kwargs)
        members = Members()
        flatten(output, "", [], members)
        return members


class RandomState:
    """The generators of torch, Python and NumPy."""

    def __init__(self):
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)

    def is_current(self) -> bool:
        return self == RandomState()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState) or len(self._cuda) != len(other._cuda):
            return False
        are_same = all(torch.equal(a, b) for a, b in zip(self._cuda, other._cuda, strict=True))
        are_same = are_same and torch.equal(self._torch, other._torch) and self._python == other._python
        return are_same and repr(self._numpy) == repr(other._numpy)

    __hash__ = None


class StayWide(TorchDispatchMode):
    """Below autograd: a narrower type that the code asks for, or that a tensor from elsewhere has, becomes the wide
    one. Random numbers are drawn in the narrow type, as the program draws them."""

    def __init__(self, narrow: torch.dtype, wide: torch.dtype):
        super().__init__()
        self._narrow = narrow
        self._wide = wide

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._draw(func, args, kwargs)
        schema = func._schema.arguments
        written = {a.name for a in schema if a.alias_info is not None and a.alias_info.is_write}
        args = [v if a.name in written else self._widen(v) for a, v in zip(schema, args)]  # noqa: B905
        return func(*args, **{k: v if k in written else self._widen(v) for k, v in kwargs.items()})

    def _draw(self, func, args, kwargs):
        name = func._schema.name
        if name == "aten::native_dropout":
            values, probability, train = args
            mask = func(values.to(self._narrow), probability, train)[1]
            return values * mask / (1 - probability) if train and probability < 1 else values * mask, mask
        if "dtype" in {argument.name for argument in func._schema.arguments} and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": self._narrow}
        drawn = func(*tree_map(self._narrowed, args), **tree_map(self._narrowed, kwargs))
        if func._schema.is_mutable and isinstance(args[0], torch.Tensor):
            return args[0].copy_(drawn)
        return self._widen(drawn)

    def _widen(self, value):
        return tree_map(lambda x: widened(x, self._wide), value)

    def _narrowed(self, value):
        return value.to(self._narrow) if isinstance(value, torch.Tensor) and value.dtype == self._wide else value


def wide_of(dtype: torch.dtype, wide: torch.dtype) -> torch.dtype:
    if dtype in _HALVES or dtype == torch.float32:
        return wide
    return _COMPLEX[wide].get(dtype, dtype)


def widened(value, wide: torch.dtype):
    """A tensor in the wide type, or a type made wide; else the value itself."""
    if isinstance(value, torch.dtype):
        return wide_of(value, wide)
    if not isinstance(value, torch.Tensor) or wide_of(value.dtype, wide) == value.dtype:
        return value
    return value.to(wide_of(value.dtype, wide))


def dtypes_of(module, args, kwargs) -> tuple[torch.dtype, torch.dtype]:
    """The widest floating-point type of the call's parameters, buffers and inputs, and the type to widen it to."""
    members = Members()
    flatten((args, kwargs), "", [], members)
    tensors = [value for _, _, value in members if isinstance(value, torch.Tensor)]
    dtypes = {each.dtype for each in (*tensors, *module.parameters(), *module.buffers())}
    if dtypes & {torch.float32, torch.complex64}:
        return torch.float32, torch.float64
    if dtypes & {torch.float64, torch.complex128}:
        raise CannotWiden("it computes in float64 already, and torch has no wider type")
    halves = [dtype for dtype in dtypes if dtype in _HALVES]
    if not halves:
        raise CannotWiden("neither its parameters nor its inputs are floating-point numbers")
    return max(halves, key=lambda dtype: torch.finfo(dtype).bits), torch.float32


@contextlib.contextmanager
def copying_made_tensors():
    """A deep copy also takes tensors that are results of a computation: torch itself copies leaves of a graph alone."""
    original = torch.Tensor.__deepcopy__

    def deepcopy(self, memo):
        if self.is_leaf or id(self) in memo:
            return original(self, memo)
        memo[id(self)] = self.detach().clone()
        return memo[id(self)]

    torch.Tensor.__deepcopy__ = deepcopy
    try:
        yield
    finally:
        torch.Tensor.__deepcopy__ = original


def check_is_apart(module, twin) -> None:
    """What is widened next is not the program's own."""
    own = {id(each) for each in (*module.modules(), *module.parameters(), *module.buffers())}
    own_data = {each.data_ptr() for each in (*module.parameters(), *module.buffers()) if each.numel()}
    for each in (*twin.modules(), *twin.parameters(), *twin.buffers()):
        is_shared = isinstance(each, torch.Tensor) and each.numel() and each.data_ptr() in own_data
        if id(each) in own or is_shared:
            raise CannotWiden("a deep copy of it shares tensors or modules with it")


def widen_module(module, wide: torch.dtype) -> None:
    for each in module.modules():
        for parameter in each._parameters.values():
            if parameter is not None:
                parameter.requires_grad_(False)
                parameter.data = widened(parameter.data, wide)
        for name, buffer in each._buffers.items():
            each._buffers[name] = widened(buffer, wide)
        for name, value in vars(each).items():
            if not name.startswith("_") or isinstance(value, torch.Tensor):
                vars(each)[name] = _widened_attribute(value, wide)


def _widened_attribute(value, wide: torch.dtype):
    """Tensors and types among a module's own attributes; what is a parameter was widened in its place."""
    if isinstance(value, torch.nn.Parameter):
        return value
    if type(value) in (list, tuple):
        return type(value)(_widened_attribute(each, wide) for each in value)
    if type(value) is dict:
        return {key: _widened_attribute(each, wide) for key, each in value.items()}
    return widened(value, wide)


def digest_of(module, args, kwargs) -> str:
    """Stands for the content of what goes into the call."""
    members = Members()
    flatten((args, kwargs), "", [], members)
    found = hashlib.sha256()
    held = (*module.named_parameters(), *module.named_buffers())
    for name, value in (*((suffix, value) for suffix, _, value in members), *held):
        content = _core.fingerprint(value.detach()) if isinstance(value, torch.Tensor) else None
        found.update(name.encode() + b"=" + (content or repr(value).encode()))
    return found.hexdigest()
