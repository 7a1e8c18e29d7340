"""Harmless changes: how a program that is run again for `tenscope noise` is made to round otherwise.

Every floating-point number of the parameters, when a model is first called, and of what its outermost calls are given,
is moved to one of its neighbours half of the time: by half a unit in its last place on average. Zeros stay: they are
masks and padding. Which ones are moved depends on the seed and on the name alone, so that the ranks of one program
move their copies of a parameter alike.
"""

from __future__ import annotations

import weakref
import zlib

import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size in bytes


def moved(tensor: torch.Tensor, seed: int, name: str) -> torch.Tensor:
    """A copy in which numbers are their neighbours; the tensor itself where it has no floating-point numbers."""
    values = tensor.detach()
    if torch.is_complex(values):
        parts = moved(torch.view_as_real(values.resolve_conj()).contiguous(), seed, name)
        return torch.view_as_complex(parts)
    if not values.is_floating_point() or values.element_size() not in _INTEGERS or values.layout != torch.strided:
        return tensor
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    # One of -1, 0, 0, 1 for each: the next smaller or larger bit pattern is the next number towards or away from zero.
    draw = torch.randint(0, 4, values.shape, generator=generator).to(values.device)
    bits = values.contiguous().view(_INTEGERS[values.element_size()])
    steps = ((draw == 3).to(bits.dtype) - (draw == 0).to(bits.dtype)) * ((values != 0) & values.isfinite())
    result = (bits + steps).view(values.dtype)
    return torch.where(result.isfinite(), result, values)


class Moves:
    """What is moved in one run of the program. Nothing it does may draw the program's random numbers."""

    def __init__(self, seed: int):
        self._seed = seed
        self._moved: dict[int, weakref.ref] = {}  # parameters, by id
        self._calls = 0

    def move_parameters(self, root) -> None:
        """Those of a model that are called for the first time, in place."""
        storages = set()
        for info, name, parameter in root.parameters():
            known = self._moved.get(id(parameter))
            if not _is_whole(parameter) or (known is not None and known() is parameter):
                continue
            self._moved[id(parameter)] = weakref.ref(parameter)
            if parameter.data_ptr() not in storages:  # else it is tied to one before it
                storages.add(parameter.data_ptr())
                parameter.data.copy_(moved(parameter, self._seed, info.prefix + name))

    def move_inputs(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments of an outermost call, with the tensors in them moved. Gradients flow back to the originals."""
        self._calls += 1
        count = 0

        def visit(value):
            nonlocal count
            if isinstance(value, torch.Tensor):
                count += 1
                if not _is_whole(value):
                    return value
                other = moved(value, self._seed, f"input {self._calls} {count}")
                if other is value:
                    return value
                return value + (other - value.detach()) if value.requires_grad else other
            if type(value) in (tuple, list):
                return type(value)(visit(member) for member in value)
            if type(value) is dict:
                return {key: visit(member) for key, member in value.items()}
            return value

        return tuple(visit(value) for value in args), {key: visit(value) for key, value in kwargs.items()}


def _is_whole(tensor: torch.Tensor) -> bool:
    """A plain tensor with numbers of its own, not a part of one that other ranks have the rest of."""
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_plain and tensor.device.type != "meta" and tensor.numel() > 0
