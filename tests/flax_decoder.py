"""The decoder of test_engines.py in Flax, linen, as one would port it: names, shapes and orders of Flax."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from test_engines import HEAD, HEADS, LAYERS, SIZE, VOCABULARY, decoder


class RMSNorm(nn.Module):
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.epsilon) * scale


class SelfAttention(nn.Module):
    scale: float = HEAD**-0.5

    @nn.compact
    def __call__(self, x):
        batch, tokens, _ = x.shape
        split = lambda name: nn.Dense(SIZE, use_bias=False, name=name)(x).reshape(batch, tokens, HEADS, HEAD)  # noqa: E731
        q, k, v = split("query"), split("key"), split("value")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * self.scale
        probabilities = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf))
        context = jnp.einsum("bhqk,bkhd->bqhd", probabilities, v).reshape(batch, tokens, SIZE)
        return nn.Dense(SIZE, use_bias=False, name="out")(context)


class Block(nn.Module):
    epsilon: float
    scale: float

    @nn.compact
    def __call__(self, x):
        x = x + SelfAttention(self.scale, name="attn")(RMSNorm(self.epsilon, name="ln_1")(x))
        y = nn.Dense(48, use_bias=False, name="wi")(RMSNorm(name="ln_2")(x))
        return x + nn.Dense(SIZE, use_bias=False, name="wo")(jax.nn.silu(y))


class FlaxDecoder(nn.Module):
    mistake: str = ""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, SIZE, name="wte")(tokens)
        for i in range(LAYERS):
            epsilon = 3e-4 if self.mistake == "epsilon" and i == 1 else 1e-6
            scale = 1.0 if self.mistake == "scale" and i == 1 else HEAD**-0.5
            x = Block(epsilon, scale, name=f"h_{i}")(x)
        return nn.Dense(VOCABULARY, use_bias=False, name="lm_head")(RMSNorm(name="ln_f")(x))


def flax_params(mistake: str = ""):
    weights = {name: jnp.asarray(p.detach().numpy()) for name, p in decoder().named_parameters()}
    kernel = lambda name: {"kernel": weights[name].T}  # noqa: E731
    scale = lambda name: {"scale": weights[name]}  # noqa: E731
    params = {"wte": {"embedding": weights["embed.weight"]}, "lm_head": kernel("head.weight")}
    params["ln_f"] = scale("norm.weight")
    for i in range(LAYERS):
        at = f"layers.{i}."
        ours = {"query": "q", "key": "k", "value": "v", "out": "o"}
        params[f"h_{i}"] = {
            "attn": {its: kernel(f"{at}attention.{name}.weight") for its, name in ours.items()},
            "ln_1": scale(at + "norm1.weight"),
            "ln_2": scale(at + "norm2.weight"),
            "wi": kernel(at + "up.weight"),
            "wo": kernel(at + "down.weight"),
        }
    if mistake == "transposed":
        out = params["h_2"]["attn"]["out"]
        out["kernel"] = out["kernel"].T
    return {"params": params}
