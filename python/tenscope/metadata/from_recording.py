"""Builds a module from what was recorded of it, calls it, and compares what it returns with what was recorded.

`tenscope repro RUN --call MODULE -o case/` puts a copy of this file beside repro.py. It needs torch, and nothing else.
"""

import dataclasses
import functools
import json
import os
import sys
import traceback

import torch
from torch import nn

_HERE = os.path.dirname(os.path.abspath(__file__))
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
    "U8": "uint8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
# Units of roundoff that two correct ways to compute the same may differ by: four times what the call makes of inputs
# and parameters that are moved by half a unit, within these bounds; in half types a constant.
_WIDE_LIMITS, _HALF_LIMIT = (16, 500), 3
_MOVES = 3  # calls that measure it


def _end_in_trouble(kind, error, trace):
    """What cannot be imported or built is trouble: exit code 2, where Python would end with 1."""
    traceback.print_exception(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)


sys.excepthook = _end_in_trouble

built = {}  # modules, by path
held = {}  # parameters and buffers, by name
inputs = {}


def load(device):
    """The recorded parameters, buffers and inputs."""
    held.update(read("state.safetensors", device))
    inputs.update(read("inputs.safetensors", device))


def read(name, device="cpu"):
    """The tensors of a safetensors file. Their dtypes, as torch calls them, stand in its metadata, unless safetensors
    has written it again."""
    with open(os.path.join(_HERE, name), "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    found = {}
    dtypes = {key: _DTYPES.get(entry.get("dtype")) for key, entry in header.items()}
    dtypes.update(header.pop("__metadata__", {}))
    for key in header:
        first, end = header[key]["data_offsets"]
        dtype = dtypes[key]
        shape = header[key]["shape"][: -1 if dtype == "complex128" else None]
        if first == end:
            found[key] = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        else:
            raw = torch.frombuffer(bytearray(data[start + first : start + end]), dtype=torch.uint8)
            found[key] = raw.view(getattr(torch, dtype)).reshape(shape).to(device)
    return found


def new(cls, attributes=None):
    """An object, without its constructor."""
    made = cls.__new__(cls)
    vars(made).update(attributes or {})
    return made


def module(path, cls, training, attributes=None, parameters=(), buffers=(), frozen=(), not_persistent=()):
    """A module, without its constructor, below the one that holds it. Parameters and buffers are those of their names
    in `held`, or given with another one there."""
    made = built[path] = cls.__new__(cls)
    nn.Module.__init__(made)
    vars(made).update(attributes or {}, training=training)
    prefix = f"{path}." if path else ""
    for name, key in _named(parameters, prefix):
        if key is not None and not isinstance(held[key], nn.Parameter):
            held[key] = nn.Parameter(held[key], requires_grad=name not in frozen and _is_inexact(held[key]))
        made._parameters[name] = None if key is None else held[key]
    for name, key in _named(buffers, prefix):
        made._buffers[name] = None if key is None else held[key]
    made._non_persistent_buffers_set.update(not_persistent)
    above, _, name = path.rpartition(".")
    if path and above in built:
        built[above]._modules[name] = made


def _named(names, prefix):
    return names.items() if isinstance(names, dict) else [(name, prefix + name) for name in names]


def compare(call, values=None, raised=""):
    """Makes the call; 0: it gives what was recorded, in bits or but for rounding, 1: it does not, 2: it cannot."""
    before = torch.get_rng_state()
    kept = [(tensor, tensor.detach().clone()) for tensor in _held() if not isinstance(tensor, nn.Parameter)]
    try:
        result = call()
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        if not raised:
            raise
        print(f"the call raised {told}, as it did when it was recorded" if told == raised else f"it raised {told}")
        return int(told != raised)
    now = _results(result)
    draws = not torch.equal(before, torch.get_rng_state())
    recorded = {**read("outputs.safetensors"), **(values or {})}
    if raised:
        print(f"when it was recorded the call raised {raised}; now it did not")
        return 1
    noise = functools.cache(lambda: _noise(call, kept, before, now))
    is_same = [_judge(name, value, now.get(name), noise) for name, value in recorded.items()]
    if all(is_same):
        print("reproduces what was recorded")
        return 0
    if draws:
        print("the call draws random numbers (dropout?), and those of the recorded call are not known: cannot tell")
        return 2
    print("does not reproduce what was recorded")
    return 1


def _held():
    return list({id(tensor): tensor for tensor in (*held.values(), *inputs.values())}.values())


def _results(result):
    """What was returned, and the inputs as they are now: the call may have changed them."""
    now = members(result, "output", {})
    now.update({f"{name}.after": value for name, value in inputs.items()})
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in now.items()}


def _noise(call, kept, generator, now):
    """By name, how many units the results move when each number of the inputs and parameters becomes its neighbour
    half of the time. Nothing where the call cannot be made again."""
    kept = kept + [(tensor, tensor.detach().clone()) for tensor in _held() if isinstance(tensor, nn.Parameter)]
    found = {}
    for seed in range(_MOVES):
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(_moved(value, random))
        torch.set_rng_state(generator)
        try:
            moved = _results(call())
        except Exception:
            return {}
        for name, value in now.items():
            if isinstance(value, torch.Tensor) and _is_inexact(value):
                other = moved.get(name)
                if not isinstance(other, torch.Tensor) or other.shape != value.shape:
                    return {}
                found[name] = max(found.get(name, 0), _distance(_wide(value), _wide(other), value.dtype)[0])
    return found


def _moved(value, random):
    if not value.is_floating_point() or value.element_size() < 2:
        return value
    steps = torch.randint(0, 4, value.shape, generator=random).to(value.device)
    ends = torch.where(steps == 0, -torch.inf, torch.inf).to(value.dtype)
    return torch.where((steps < 2) & (value != 0), torch.nextafter(value, ends), value)


def members(value, name, found):
    """The tensors, numbers and texts of a nest, by the names that a recording gives them."""
    if isinstance(value, (torch.Tensor, bool, int, float, str)):
        found[name] = value.detach() if isinstance(value, torch.Tensor) else value
    elif hasattr(value, "items") and hasattr(value, "keys"):
        for key, member in value.items():
            members(member, f"{name}.{key}", found)
    elif isinstance(value, (tuple, list)):
        for position, member in enumerate(value):
            members(member, f"{name}.{position}", found)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            members(getattr(value, field.name, None), f"{name}.{field.name}", found)
    return found


def _judge(name, then, now, noise):
    """Says how a value is another than the recorded one; whether it is the same, in bits or but for rounding."""
    if not isinstance(then, torch.Tensor) or not isinstance(now, torch.Tensor):
        is_same = type(then) is type(now) and (then == now or (then != then and now != now))
        print(f"{name}: equal" if is_same else f"{name}: {_text(then)} was recorded, now it is {_text(now)}")
        return is_same
    if then.shape != now.shape or then.dtype != now.dtype:
        print(f"{name}: {_text(then)} was recorded, now it is {_text(now)}")
        return False
    a, b = (each.detach().cpu().contiguous().view(-1) for each in (then, now))
    if torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
        print(f"{name}: equal in bits")
        return True
    if not _is_inexact(a):
        print(f"{name}: DIFFERS in {int((a != b).sum())} of {a.numel()} elements")
        return False
    units, has_same_odd = _distance(_wide(a), _wide(b), a.dtype)
    limit = _HALF_LIMIT
    if torch.finfo(a.dtype).bits > 16:
        least, most = _WIDE_LIMITS
        limit = min(max(least, 4 * noise().get(name, most)), most) if has_same_odd and units > least else least
    is_same = has_same_odd and units <= limit
    word = "the same but for rounding" if is_same else "DIFFERS"
    told = "" if is_same else f"; up to {limit:.3g} are rounding"
    told += "" if has_same_odd else ", and NaN or infinities stand elsewhere"
    print(f"{name}: {word}: by {units:.3g} units of roundoff of its largest value at most{told}")
    return is_same


def _wide(tensor):
    return tensor.detach().cpu().contiguous().view(-1).to(torch.complex128 if tensor.is_complex() else torch.float64)


def _distance(a, b, dtype):
    """Units of roundoff of the largest value of `a`; whether NaN and infinities stand at the same places."""
    is_finite = torch.isfinite(a)
    odd = torch.where(is_finite, 0, a), torch.where(torch.isfinite(b), 0, b)
    has_same_odd = torch.equal(is_finite, torch.isfinite(b)) and torch.allclose(*odd, rtol=0, atol=0, equal_nan=True)
    largest = float(a[is_finite].abs().max()) if is_finite.any() else 0.0
    both = is_finite & torch.isfinite(b)
    furthest = float((a - b)[both].abs().max()) if both.any() else 0.0
    unit = largest * torch.finfo(dtype).eps / 2
    return furthest / unit if unit else float("inf") if furthest else 0.0, has_same_odd


def _is_inexact(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _text(value):
    return f"{str(value.dtype)[6:]} {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def device(otherwise):
    """The first word of the command line, else what was recorded."""
    return sys.argv[1] if len(sys.argv) > 1 else otherwise
