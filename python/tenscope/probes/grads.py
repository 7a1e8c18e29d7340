"""Gradients that pass through a module call, read without touching the graph.

Overview. torch's full backward hooks put a node of their own around each module: that makes outputs views, which
breaks in-place modules, and changes the order in which gradients are added up. Here nothing is inserted. When a
module call ends, a pre-hook on the node that made an output tells the gradient that arrives there (grad_output). For
grad_input the graph is walked back from the outputs over the nodes made during this call (their sequence numbers are
later than the call's beginning) to the edges that leave for one of its inputs; hooks on the nodes before those edges
tell what this call, and no other user of the same tensor, adds to that input's gradient. Hooks only look: they return
None and keep no reference beyond the backward pass.
"""

from __future__ import annotations

import torch

from tenscope.recording.parts import is_dtensor

MAX_NODES = 20_000  # of one module call; beyond it grad_input is left out

next_sequence_nr = torch._C._autograd._get_sequence_nr


class InputEdges:
    """Where the inputs of a module call come from in the graph, noted before the call."""

    __slots__ = ("first_nr", "leaves", "names", "nodes")

    def __init__(self, tensors: list[tuple[str, object, torch.Tensor]]):
        self.first_nr = next_sequence_nr()
        self.names: list[tuple[str, object]] = []
        self.nodes: dict[tuple[object, int], int] = {}
        self.leaves: dict[int, int] = {}
        for suffix, index, tensor in tensors:
            if not tensor.requires_grad:
                continue
            node = tensor.grad_fn
            key = id(tensor) if node is None else (node, tensor.output_nr)
            table = self.leaves if node is None else self.nodes
            if key not in table:
                table[key] = len(self.names)
                self.names.append((suffix, index))


class _Arrival:
    """Pre-hook of a node: the gradient that arrives at one of its outputs."""

    __slots__ = ("output_nr", "tell")

    def __init__(self, output_nr: int, tell):
        self.output_nr = output_nr
        self.tell = tell

    def __call__(self, grads):
        if grads[self.output_nr] is not None:
            self.tell(grads[self.output_nr])


class Contribution:
    """The sum of what the nodes of one call give to one input's gradient. Told when all have given; what only some
    gave to waits in `pending` for the end of the backward pass."""

    __slots__ = ("arrived", "expected", "parts", "pending", "tell")

    def __init__(self, tell, pending: list[Contribution]):
        self.pending = pending
        self.expected = 0
        self.arrived = 0
        self.parts: list[torch.Tensor] = []
        self.tell = tell

    def give(self, part: torch.Tensor | None) -> None:
        self.arrived += 1
        if part is not None:
            self.parts.append(part)
        if self.arrived == self.expected:
            self.finish()
        elif self.arrived == 1:
            self.pending.append(self)

    def finish(self) -> None:
        parts, self.parts = self.parts, []
        self.arrived = 0
        if not parts or not _are_alike(parts):
            return
        total = parts[0]
        with torch.no_grad():
            for part in parts[1:]:
                total = total + part
        self.tell(total)


def _are_alike(parts: list[torch.Tensor]) -> bool:
    """Can they be added without a collective? DTensors of other placements are redistributed first."""
    if not any(is_dtensor(part) for part in parts):
        return True
    return all(is_dtensor(part) and part._spec.placements == parts[0]._spec.placements for part in parts)


class _Departure:
    """Post-hook of a node: hands its gradients on to the contributions they belong to."""

    __slots__ = ("targets",)

    def __init__(self):
        self.targets: list[tuple[int, Contribution]] = []

    def __call__(self, grad_inputs, _):
        for position, contribution in self.targets:
            contribution.give(grad_inputs[position])


def watch_outputs(tensors, tell) -> list:
    """Calls tell(suffix, index, grad) when a gradient arrives at one of the tensors; returns their nodes."""
    nodes = []
    for suffix, index, tensor in tensors:
        if not tensor.requires_grad or tensor.grad_fn is None:
            continue
        node = tensor.grad_fn
        node.register_prehook(_Arrival(tensor.output_nr, lambda grad, s=suffix, i=index: tell(s, i, grad)))
        nodes.append(node)
    return nodes


def watch_inputs(edges: InputEdges, output_nodes: list, tell, pending: list[Contribution]) -> bool:
    """Calls tell(suffix, index, grad) with what the call gives to each input's gradient. False: not told, since the
    graph of the call has more than MAX_NODES nodes."""
    contributions = [Contribution(lambda grad, s=s, i=i: tell(s, i, grad), pending) for s, i in edges.names]
    departures: dict[object, _Departure] = {}
    seen = set(output_nodes)
    todo = [node for node in seen if node._sequence_nr() >= edges.first_nr]
    while todo:
        node = todo.pop()
        for position, (target, output_nr) in enumerate(node.next_functions):
            if target is None:
                continue
            which = edges.nodes.get((target, output_nr))
            if which is None and edges.leaves:
                variable = getattr(target, "variable", None)
                which = None if variable is None else edges.leaves.get(id(variable))
            if which is not None:
                departures.setdefault(node, _Departure()).targets.append((position, contributions[which]))
                contributions[which].expected += 1
            elif target not in seen:
                seen.add(target)
                if target._sequence_nr() >= edges.first_nr:
                    todo.append(target)
        if len(seen) > MAX_NODES:
            return False
    for node, departure in departures.items():
        node.register_hook(departure)
    return True
