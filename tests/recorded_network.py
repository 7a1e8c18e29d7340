"""What tests of the viewer's page record: a small network, without torch, and a function that `watch` looks at."""

import numpy as np
import tenscope

STEPS = 3
MODULES = {
    "": "Net",
    "places": "Embedding",
    "blocks.0": "Block",
    "blocks.0.mlp": "Linear",
    "blocks.1": "Block",
    "blocks.1.mlp": "Linear",
    "head": "Linear",
}
WRONG = "blocks.1.mlp.output"


def make_weights():
    random = np.random.default_rng(1)
    return {name: random.normal(size=(16, 16)).astype(np.float32) / 4 for name in ("blocks.0.mlp", "blocks.1.mlp")}


def record_network(folder, name, is_wrong=False, is_sick=False):
    """A network of blocks, as a traced model records itself; `is_wrong`: a mistake in one module from step 1 on."""
    weights = make_weights()
    random = np.random.default_rng(2)
    with tenscope.Run(folder, name=name, metadata=False) as run:

        def of(module, what, value=None, step=0, **more):
            values = {} if value is None else {"value": value}
            run.record(what, **values, scope=module, root="Net#0", cls=MODULES[module], step=step, call=step, **more)

        for module, weight in weights.items():
            of(module, f"{module}.weight", weight, io="param", phase="init")
        for step in range(STEPS):
            run.step(step)

            def call(module, x, compute, step=step):
                """The call of a module, with what it takes and gives."""
                prefix = f"{module}." if module else ""
                of(module, module, step=step, kind="enter", phase="forward")
                of(module, f"{prefix}input.0", x, step=step, io="input", phase="forward")
                y = compute(x)
                of(module, f"{prefix}output", y, step=step, io="output", phase="forward")
                of(module, module, step=step, kind="exit", phase="forward")
                return y

            def linear(module, step=step):
                def compute(x):
                    y = (x @ weights[module]).astype(np.float32)
                    if is_wrong and module == "blocks.1.mlp" and step >= 1:
                        y[1, 3] += np.float32(0.5)
                        y[4, 7] -= np.float32(0.25)
                    return y

                return lambda x: call(module, x, compute)

            def head(x, step=step):
                y = np.tanh(x)
                if is_sick and step == 2:
                    y[0, 5] = np.nan
                    y[2, 1] = np.inf
                return y

            def network(x):
                x = call("places", x, lambda x: x + np.float32(0.5))
                x = call("blocks.0", x, lambda x: np.maximum(linear("blocks.0.mlp")(x), 0))
                x = call("blocks.1", x, lambda x: np.maximum(linear("blocks.1.mlp")(x), 0))
                return call("head", x, head)

            y = call("", random.normal(size=(6, 16)).astype(np.float32), network)
            run.record("loss", float(np.nan_to_num(y).mean()), step=step)
    return folder / name


def record_networks(folder):
    """A good one, one with a mistake from step 1 on, and one with a NaN and an infinity at step 2."""
    record_network(folder, "good")
    record_network(folder, "bad", is_wrong=True)
    record_network(folder, "sick", is_sick=True)
    return folder


def record_watched(folder, name):
    tenscope.init(folder, name=name, metadata=False)
    try:

        @tenscope.watch("loss", "w")
        def train():
            w = np.zeros(3, np.float32)
            loss = 8.0
            for i in range(3):
                w[i] = i + 1
                loss = loss / 2
            loss = float("nan")
            return loss

        train()
    finally:
        tenscope.close()
    return folder / name


def read(run, name, step):
    return np.asarray(tenscope.open(run)[name, step])
