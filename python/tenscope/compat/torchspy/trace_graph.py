"""A list of module paths as a tree, and the tree as a picture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass
class Node:
    name: str
    children: dict[str, Node] = dataclasses.field(default_factory=dict)
    count: int = 1
    first_seen: int = 0
    parents: set[str] = dataclasses.field(default_factory=set)
    indices: set[str] = dataclasses.field(default_factory=set)


def parse_trace(path) -> list[str]:
    lines = [line.strip() for line in Path(path).read_text().splitlines()]
    paths = [line for line in lines if line]
    if not paths:
        raise ValueError(f"trace file is empty: {path}")
    return paths


def build_tree(paths) -> Node:
    root = Node("root")
    for number, path in enumerate(paths):
        node = root
        for segment in str(path).split("."):
            if segment.isascii() and segment.isdigit() and node is not root:
                node.indices.add(segment)
                continue
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = Node(segment, first_seen=number)
            child.parents.add(node.name)
            node = child
    for node in _walk(root):
        node.count = max(1, len(node.indices))
    return root


def squash_numeric_indices(tree: Node) -> Node:
    return tree


def prune_leaves(tree: Node) -> Node:
    """A new tree without the last segment of every path from the root; paths of one segment stay."""

    def copy(node: Node, depth: int) -> Node:
        kept = {name: copy(child, depth + 1) for name, child in node.children.items() if child.children or depth == 0}
        return dataclasses.replace(node, children=kept, parents=set(node.parents), indices=set(node.indices))

    return copy(tree, 0)


def save_tree_json(tree: Node, path) -> None:
    Path(path).write_text(json.dumps(_as_dict(tree), indent=2))


def _as_dict(node: Node) -> dict:
    return {
        "name": node.name,
        "count": len(node.indices),
        "indices": sorted(node.indices, key=lambda text: (int(text), text)),
        "children": [_as_dict(child) for child in node.children.values()],
    }


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children.values():
        yield from _walk(child)


def construct_graph(
    tree: Node, show_repetition: bool = True, prune_leaves_flag: bool = True, squash_name: bool = False
):
    import graphviz

    shown = prune_leaves(tree) if prune_leaves_flag else tree
    dot = graphviz.Digraph(format="png", graph_attr={"rankdir": "TB"})
    repetitions: dict[str, int] = {}
    names: dict[str, str] = {}
    edges: dict[tuple[str, str], None] = {}

    def visit(node: Node, key: str) -> None:
        for child in node.children.values():
            child_key = child.name if squash_name else f"{key}.{child.name}" if key else child.name
            names.setdefault(child_key, child.name)
            repetitions[child_key] = repetitions.get(child_key, 0) + len(child.indices)
            if key and key != child_key:
                edges[key, child_key] = None
            visit(child, child_key)

    visit(shown, "")
    for key, name in names.items():
        label = f"{name} x {repetitions[key]}" if show_repetition and repetitions[key] > 1 else name
        dot.node(_identifier(key), label)
    for parent, child in edges:
        dot.edge(_identifier(parent), _identifier(child))
    return dot


def _identifier(key: str) -> str:
    return key.replace(":", "_")  # graphviz would take what follows a colon for a port


def apply_graph_render_options(
    dot, dpi: int = 150, figwidth: float | None = None, figheight: float | None = None
) -> None:
    dot.graph_attr["dpi"] = str(dpi)
    if figwidth is not None or figheight is not None:
        width = figwidth if figwidth is not None else figheight
        height = figheight if figheight is not None else figwidth
        dot.graph_attr["size"] = f"{width},{height}!"
        dot.graph_attr["ratio"] = "fill"


def render_graph(tree: Node, show_repetition: bool = True, prune_leaves_flag: bool = True, squash_name: bool = False,
                 dpi: int = 150, figwidth: float | None = None, figheight: float | None = None):  # fmt: skip
    dot = construct_graph(tree, show_repetition, prune_leaves_flag, squash_name)
    apply_graph_render_options(dot, dpi, figwidth, figheight)
    return dot
