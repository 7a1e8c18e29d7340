"""tenscope.jax.record: values inside jax.jit, scan, vmap and grad, delivered when the compiled program has them."""

from __future__ import annotations

import functools
import os
from typing import Any

import jax

from tenscope.jax.values import host_value
from tenscope.recording.callers import callers
from tenscope.recording.run import before_close, current


def record(name: str, value: Any, *, ordered: bool = False, **fields: Any) -> None:
    """Records an array, or any nest of them, also inside a function that JAX traces; the keywords are those of
    tenscope.record. The run is the current one when the compiled function runs.

    Inside scan and vmap there is one event for each iteration, and for each member of the batch. `ordered=True` keeps
    the order of such calls as that of the program, which JAX does not promise otherwise; it is not for vmap.
    """
    if "site" not in fields:
        fields["site"] = _site()
    leaves, tree = jax.tree_util.tree_flatten(value)
    traced = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    if not traced:
        _deliver(name, fields, tree, leaves, ())
        return
    _wait_before_close()
    told = functools.partial(_deliver, name, fields, tree, [None if i in traced else x for i, x in enumerate(leaves)])
    values = [_plain(leaves[i]) for i in traced]
    jax.debug.callback(lambda *arrays: told(dict(zip(traced, arrays, strict=True)).items()), *values, ordered=ordered)


def _plain(value: Any) -> Any:
    return jax.random.key_data(value) if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) else value


def _deliver(name: str, fields: dict[str, Any], tree: Any, leaves: list[Any], arrays: Any) -> None:
    run = current()
    if run is None or not run.enabled:
        return
    values = list(leaves)
    for i, array in arrays:
        values[i] = array
    run.record(name, jax.tree_util.tree_unflatten(tree, [host_value(value)[0] for value in values]), **fields)


def _site() -> str:
    caller = next(callers(1), None)
    if caller is None:
        return ""
    path = os.path.relpath(caller.file)
    return f"{caller.file if path.startswith('..') else path}:{caller.line}"


@functools.cache
def _wait_before_close() -> None:
    before_close(lambda _: jax.effects_barrier())
