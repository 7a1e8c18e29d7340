"""Random small models as two engines would record them: other names, weights transposed, q, k and v in one
tensor, the last token's row alone. A clean pair is silent; one mistake is named where it is, whichever run is first."""

import random

import numpy as np
import pytest
import tenscope

f4 = np.float32


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


HEADS = {
    "logits": None,
    "softmax": softmax,
    "sigmoid": lambda y: 1 / (1 + np.exp(-y)),
    "argmax": lambda y: y.argmax(-1),
    "loss": lambda y: np.asarray((y**2).mean(), f4),
    "scores": lambda y: (y**2).mean(-1),
    "top": lambda y: np.sort(y, -1)[..., ::-1][..., :3].copy(),
    "slice": lambda y: y[..., :2].copy(),
}


def one_element(x):
    y = x.copy()
    y.flat[y.size // 2] += 1
    return y


MISTAKES = {
    "scale": lambda x: x * f4(1.1),
    "sign": lambda x: -x,
    "shift": lambda x: x + f4(0.3),
    "roll": lambda x: np.roll(x, 1, 0) if x.ndim else -x,
    "element": one_element,
    "square": lambda x: x * np.abs(x),
    "noise": lambda x: np.random.default_rng(5).standard_normal(x.shape).astype(f4),
}


class Model:
    def __init__(self, seed):
        choose, draw = random.Random(seed), np.random.default_rng(seed)
        self.tokens = choose.choice([3, 4, 6, 12])
        self.width = choose.choice([6, 8, 16, 24])
        self.hidden = choose.choice([8, 12, 32])
        self.layers = choose.choice([1, 2, 3])
        self.vocabulary = choose.choice([5, 10, 40])
        self.has_attention = choose.random() < 0.4
        self.is_fused = choose.random() < 0.4  # q, k and v of the second engine
        self.is_last_row = choose.random() < 0.3  # all that the second engine returns
        self.head = choose.choice(list(HEADS))
        are_ones = choose.random() < 0.5  # norms as they are initialised
        d, h, v = self.width, self.hidden, self.vocabulary

        def normal(*shape):
            return (draw.standard_normal(shape) / shape[-1] ** 0.5).astype(f4)

        self.weights = {"emb": draw.standard_normal((v, d)).astype(f4)}
        for i in range(self.layers):
            self.weights |= {
                (i, "norm"): (np.ones(d) if are_ones else 1 + 0.1 * draw.standard_normal(d)).astype(f4),
                (i, "bias"): (np.zeros(h) if are_ones else 0.1 * draw.standard_normal(h)).astype(f4),
                (i, "up"): normal(h, d),
                (i, "down"): normal(d, h),
                **{(i, n): normal(d, d) for n in "qkv"},
            }
        self.weights["head"] = normal(1 if self.head == "sigmoid" else v, d)
        self.ids = draw.integers(0, v, self.tokens)

    def run(self, engine, mistake=None):
        """Events: what it is, name, value, whether it is a parameter. `mistake` is what goes wrong, and how."""
        weights, is_first, events = self.weights, engine == "first", []

        def put(role, first, second, x, is_parameter=False):
            x = np.asarray(x)
            if mistake and mistake[0] == role:
                x = np.asarray(mistake[1](x)).astype(x.dtype)
            events.append((role, first if is_first else second, x, is_parameter))
            return x

        def parameter(role, first, second, x, is_transposed=False):
            put(role, first, second, x if is_first or not is_transposed else np.ascontiguousarray(x.T), True)

        parameter("p.emb", "embeddings.weight", "wte", weights["emb"])
        for i in range(self.layers):
            first, second = f"layers.{i}.", f"blk.{i}."
            parameter(("p.norm", i), first + "ln.weight", second + "norm_g", weights[i, "norm"])
            parameter(("p.up", i), first + "fc.weight", second + "up_w", weights[i, "up"], True)
            parameter(("p.bias", i), first + "fc.bias", second + "up_b", weights[i, "bias"])
            parameter(("p.down", i), first + "proj.weight", second + "down_w", weights[i, "down"], True)
            if self.has_attention and self.is_fused and not is_first:
                parameter(("p.qkv", i), "", second + "wqkv", np.concatenate([weights[i, n] for n in "qkv"]))
            elif self.has_attention:
                for n in "qkv":
                    parameter(("p." + n, i), f"{first}{n}.weight", f"{second}w{n}", weights[i, n], True)
        parameter("p.head", "lm_head.weight", "output_w", weights["head"])
        put("ids", "input_ids", "inp", self.ids.astype(np.int64 if is_first else np.int32))
        x = put("embed", "embed", "inp_embd", weights["emb"][self.ids])
        for i in range(self.layers):
            layer = f"layers.{i}"
            scaled = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weights[i, "norm"]
            y = put(("norm", i), layer + ".ln", f"norm-{i}", scaled.astype(f4))
            if self.has_attention:
                if self.is_fused and not is_first:
                    joined = y @ np.concatenate([weights[i, n] for n in "qkv"]).T
                    q, k, v = np.split(put(("qkv", i), "", f"qkv-{i}", joined), 3, -1)
                else:
                    q, k, v = (put((n, i), f"{layer}.{n}", f"{n}cur-{i}", y @ weights[i, n].T) for n in "qkv")
                scores = put(("scores", i), layer + ".attn.probs", f"kq-{i}", softmax(q @ k.T / self.width**0.5))
                y = put(("attn", i), layer + ".attn", f"kqv-{i}", scores @ v)
            y = put(("up", i), layer + ".fc", f"up-{i}", y @ weights[i, "up"].T + weights[i, "bias"])
            y = put(("act", i), layer + ".act", f"act-{i}", np.maximum(y, 0))
            y = put(("down", i), layer + ".proj", f"down-{i}", y @ weights[i, "down"].T)
            x = put(("out", i), layer, f"l_out-{i}", x + y)
        if self.is_last_row and not is_first:
            x = x[-1:]
        y = put("head", "lm_head", "result_output", x @ weights["head"].T)
        if self.is_last_row:
            y = y[-1:]
        if HEADS[self.head]:
            put("end", "end", "result_end", HEADS[self.head](y))
        return events


def record(folder, name, events):
    with tenscope.Run(folder, name=name) as run:
        for _, event, value, is_parameter in events:
            run.record(event, value, **({"io": "param"} if is_parameter else {}))
    return folder / name


@pytest.mark.parametrize("seed", range(60))
def test_a_clean_pair_is_silent_and_a_mistake_is_named(tmp_path, seed):
    model, choose = Model(seed), random.Random(seed + 1000)
    first, second = model.run("first"), model.run("second")
    mistake = None
    if seed % 4:
        roles = [role for role, _, _, is_parameter in second if not is_parameter and role != "ids"]
        role = "end" if "end" in roles and choose.random() < 0.3 else choose.choice(roles)
        is_integer = role == "end" and model.head == "argmax"
        mistake = (role, MISTAKES[choose.choice(["roll", "element"] if is_integer else list(MISTAKES))])
        right = {e[0]: e[2] for e in second}[role]
        second = model.run("second", mistake)
        if np.array_equal(right, {e[0]: e[2] for e in second}[role]):
            mistake = None  # one row rolled, say
    a, b = record(tmp_path, "a", first), record(tmp_path, "b", second)
    for x, y, events in (a, b, first), (b, a, second):
        diff = tenscope.diff(x, y).json
        if mistake is None:
            assert diff["verdict"] in ("equal", "noise"), diff["first_divergence"] or diff["notes"]
            continue
        names = {e[1] for e in events if e[0] == mistake[0]}
        if not names:  # the first run has q, k and v
            names = {f"layers.{mistake[0][1]}.{n}" for n in "qkv"}
        assert diff["verdict"] == "differs"
        assert diff["first_divergence"]["seen_as"] in names
