"""python -m tenscope.compat.torchspy.trace_to_graph --trace-file F --out P: draws a saved trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .trace_graph import build_tree, parse_trace, render_graph, save_tree_json, squash_numeric_indices


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="trace_to_graph", description="Draws the call graph of a saved trace.")
    parser.add_argument("--trace-file", required=True, metavar="F", help="a file of module paths, one a line")
    parser.add_argument("--out", required=True, metavar="P", help="the picture; .png is added where it is missing")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--show-repetition", action=switch, default=True, help="tell how often a layer is repeated")
    parser.add_argument("--prune-leaves", action=switch, default=True, help="leave out the last part of each path")
    parser.add_argument("--squash-name", action="store_true", help="one node for all modules of one name")
    parser.add_argument("--dpi", type=int, default=150)
    parser.add_argument("--figwidth", type=float, metavar="W", help="inches")
    parser.add_argument("--figheight", type=float, metavar="H", help="inches")
    parser.add_argument("--save-json", metavar="F", help="the whole tree as JSON")
    parser.add_argument("--verbose", action="store_true", help="tell where the picture is")
    options = parser.parse_args(words)
    try:
        tree = build_tree(parse_trace(options.trace_file))
        if options.save_json:
            save_tree_json(tree, options.save_json)
        dot = render_graph(squash_numeric_indices(tree), options.show_repetition, options.prune_leaves,
                           options.squash_name, options.dpi, options.figwidth, options.figheight)  # fmt: skip
        out = Path(options.out)
        stem = out.with_suffix("") if out.suffix.lower() == ".png" else out
        dot.render(filename=str(stem), cleanup=True)
    except Exception as error:
        print(f"trace_to_graph: {error}", file=sys.stderr)
        return 1
    if options.verbose:
        print(f"graph written to {stem}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
