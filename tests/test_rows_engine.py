"""A trainer's padded batch against an engine that serves requests: prefill in chunks, decoding, caches, speculation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tenscope

SIZE, HEADS, LAYERS, VOCABULARY, LONGEST = 16, 2, 2, 23, 16
RANDOM = np.random.default_rng(7)
WEIGHTS = {
    "embed": RANDOM.standard_normal((VOCABULARY, SIZE)).astype(np.float32),
    "head": RANDOM.standard_normal((SIZE, VOCABULARY)).astype(np.float32) * np.float32(0.5),
    **{
        f"layers.{layer}.{name}": RANDOM.standard_normal((SIZE, SIZE)).astype(np.float32) / np.float32(4)
        for layer in range(LAYERS)
        for name in ("q", "k", "v", "o")
    },
}
LENGTHS = {901: 11, 17: 5, 333: 8, 52: 13}  # by request
SEQUENCES = {request: RANDOM.integers(1, VOCABULARY, length) for request, length in LENGTHS.items()}


def angles(x, position):
    """A rotary embedding, of each head's halves."""
    half = SIZE // HEADS // 2
    turn = np.asarray(position)[..., None, None] / 100 ** (np.arange(half) / half)
    x = x.reshape(*x.shape[:-1], HEADS, 2 * half)
    a, b = x[..., :half], x[..., half:]
    out = np.concatenate([a * np.cos(turn) - b * np.sin(turn), a * np.sin(turn) + b * np.cos(turn)], -1)
    return out.astype(np.float32)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def attend(q, keys, values):
    """One token: q [heads, size], keys and values [tokens, heads, size]."""
    scores = np.einsum("hd,thd->ht", q, keys) / np.float32(np.sqrt(q.shape[-1]))
    weights = np.exp(log_softmax(scores))
    return np.einsum("ht,thd->hd", weights, values).reshape(-1)


class Engine:
    """Computes rows (request, position, token), with what earlier rows left in its cache."""

    def __init__(self, run=None, prefix="", temperature=1.0, wrong=None):
        self.run, self.prefix, self.temperature = run, prefix, temperature
        self.wrong = wrong or (lambda name, x, rows: x)
        self.cache = {}

    def record(self, name, value, rows):
        value = self.wrong(name, value, rows)
        if self.run is not None:
            self.run.record(self.prefix + name, value)
        return value

    def times(self, x, weight):
        """An engine adds in another order than a trainer."""
        return x @ weight if self.run is None else x[:, ::-1].copy() @ weight[::-1]

    def forward(self, rows):
        position = np.array([p for _, p, _ in rows])
        x = self.record("x", WEIGHTS["embed"][[token for _, _, token in rows]], rows)
        for layer in range(LAYERS):
            q, k, v = (self.times(x, WEIGHTS[f"layers.{layer}.{name}"]) for name in "qkv")
            q, k, v = angles(q, position), angles(k, position), v.reshape(len(rows), HEADS, -1)
            k = self.record(f"layers.{layer}.k", k, rows)
            out = np.zeros_like(x)
            for i, (request, p, _) in enumerate(rows):  # rows of a request come in their order
                self.cache[request, layer, p] = k[i], v[i]
                keys, values = zip(*(self.cache[request, layer, at] for at in range(p + 1)), strict=True)
                out[i] = attend(q[i], np.stack(keys), np.stack(values))
            x = self.record(f"layers.{layer}.out", x + out @ WEIGHTS[f"layers.{layer}.o"], rows)
        return self.record("logits", (x @ WEIGHTS["head"]) / np.float32(self.temperature), rows)

    def step(self, rows, following=None, keys=True):
        """`following`: the token after each row, whose log-probability is recorded."""
        if keys:
            self.run.record("request", np.array([r for r, _, _ in rows], np.int64))
            self.run.record("position", np.array([p for _, p, _ in rows], np.int32))
            self.run.record("token", np.array([t for _, _, t in rows], np.int32))
        logprobs = log_softmax(self.forward(rows))
        following = following or [next_token(r, p) for r, p, _ in rows]
        self.record("logprobs", logprobs[np.arange(len(rows)), following], rows)
        self.run.step()


def next_token(request, position):
    own = SEQUENCES[request]
    return own[(position + 1) % len(own)]


def row(request, position):
    return (request, position, SEQUENCES[request][position])


def rows_of(request, begin=0, end=None):
    return [row(request, p) for p in range(begin, LENGTHS[request] if end is None else end)]


def record_trainer(folder, name="trainer", side="right", batches=((901, 17, 333, 52),)):
    """[sequences, tokens] in the given batches, padded on one side; heads in front of tokens."""
    with tenscope.Run(folder, name=name, metadata=False) as run:
        for batch in batches:
            columns = {k: np.full((len(batch), LONGEST), -1, np.int64) for k in ("request", "position", "token")}
            tensors = {}
            for i, request in enumerate(batch):
                own = rows_of(request)
                at = slice(0, len(own)) if side == "right" else slice(LONGEST - len(own), LONGEST)
                for k, column in enumerate(columns.values()):
                    column[i, at] = [one[k] for one in own]
                seen = {}
                engine = Engine(wrong=lambda name, x, rows, seen=seen: seen.setdefault(name, x))
                logprobs = log_softmax(engine.forward(own))
                seen["logprobs"] = logprobs[np.arange(len(own)), [next_token(r, p) for r, p, _ in own]]
                for key, value in seen.items():
                    whole = tensors.setdefault(key, RANDOM.standard_normal((len(batch), LONGEST, *value.shape[1:])))
                    whole[i, at] = value
            for key, value in columns.items():
                run.record(key, value)
            for key, value in tensors.items():
                is_of_heads = key.endswith(".k")
                run.record(key, (value.swapaxes(1, 2) if is_of_heads else value).astype(np.float32))
            run.step()
    return folder / name


def plain(engine):
    """Prefill, then a token at a time; requests enter and leave."""
    engine.step(rows_of(17, 0, 3) + rows_of(901, 0, 7))
    engine.step([*rows_of(52, 0, 6), row(17, 3), row(901, 7)])
    for i in range(4):
        running = [(52, 6 + i), (901, 8 + i), (17, 4 + i)]
        engine.step([row(r, p) for r, p in running if p < LENGTHS[r]])
    engine.step(rows_of(333))
    for p in range(10, 13):
        engine.step([row(52, p)])


def chunked(engine):
    """Prompts in chunks, mixed with decoding."""
    for begin in range(0, max(LENGTHS.values()), 3):
        engine.step([row(r, p) for r in (52, 333, 17, 901) for p in range(begin, min(begin + 3, LENGTHS[r]))])


def cached(engine):
    """Another server computed the beginnings: the engine has them in its cache."""
    warm = Engine()
    for request in (901, 333):
        warm.forward(rows_of(request, 0, 4))
    engine.cache = warm.cache
    engine.step(rows_of(17) + rows_of(901, 4))
    engine.step(rows_of(333, 4))
    engine.step(rows_of(52))


def preempted(engine):
    """A request loses its cache and is computed again."""
    engine.step(rows_of(901, 0, 6) + rows_of(17))
    engine.step(rows_of(333))
    engine.step(rows_of(52) + rows_of(901))


def speculating(engine):
    """Draft tokens are computed with the rest; where one is rejected its position comes again, with the right token."""
    engine.step(rows_of(901, 0, 4) + rows_of(17) + rows_of(333))
    wrong = [(901, p, (SEQUENCES[901][p] + 1) % VOCABULARY) for p in (5, 6)]
    engine.step([row(901, 4), *wrong], following=[SEQUENCES[901][5], 1, 2])
    engine.step(rows_of(901, 5) + rows_of(52, 0, 6))
    right_then_wrong = [row(52, 6), row(52, 7), (52, 8, (SEQUENCES[52][8] + 3) % VOCABULARY)]
    engine.step(right_then_wrong, following=[SEQUENCES[52][7], SEQUENCES[52][8], 3])
    engine.step(rows_of(52, 8))


SERVERS = {"plain": plain, "chunked": chunked, "cached": cached, "preempted": preempted, "speculating": speculating}


def record_engine(folder, server=plain, name="engine", **engine):
    with tenscope.Run(folder, name=name, metadata=False) as run:
        server(Engine(run, **engine))
    return folder / name


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("prefix", ["", "model_runner."], ids=["equal-names", "other-names"])
def test_a_clean_engine_is_clean(tmp_path, side, server, prefix):
    trainer = record_trainer(tmp_path, side=side, batches=((901, 17), (333, 52)))
    engine = record_engine(tmp_path, SERVERS[server], prefix=prefix)
    for way in ((trainer, engine), (engine, trainer)):
        diff = tenscope.diff(*way, rows="request,position")
        assert diff.verdict == "noise", str(diff)
        rows = diff.json["rows"]
        assert diff.json["counts"]["compared"] == 4 + 2 * LAYERS, str(diff)
        assert len(rows["tables"]) == 1, str(diff)
        missing = 8 if server == "cached" else 0
        again = {"preempted": 6, "speculating": 3}.get(server, 0)
        assert rows["common"] == sum(LENGTHS.values()) - missing and rows["duplicates"] == again
        assert not rows["left_out_first"] and not rows["left_out_second"]
        if missing or again:
            assert str(diff).startswith(f"equal as far as compared: {rows['common']} rows, of ")


def changed(name, change, only=lambda r, p: True):
    def wrong(of, x, rows):
        if of != name:
            return x
        x = x.copy()
        for i, (request, position, _) in enumerate(rows):
            if only(request, position):
                x[i] = change(x[i])
        return x

    return wrong


def swapped_rows(of, x, rows):
    """The rows of two requests are exchanged in the first layer's output."""
    mine, others = ([i for i, (r, _, _) in enumerate(rows) if r == request] for request in (901, 17))
    if of != "layers.0.out" or not mine or not others:
        return x
    x = x.copy()
    for i, j in zip(mine, others, strict=False):
        x[[i, j]] = x[[j, i]]
    return x


MISTAKES = {
    "one layer": ({"wrong": changed("layers.1.k", lambda x: 1.1 * x)}, "layers.1.k", None),
    "one request": (
        {"wrong": changed("layers.0.out", lambda x: x + 1, lambda r, p: r == 52)},
        "layers.0.out",
        "request 52",
    ),
    "late positions": (
        {"wrong": changed("layers.1.out", lambda x: -x, lambda r, p: p >= 8)},
        "layers.1.out",
        "position 8 and beyond",
    ),
    "temperature": ({"temperature": 0.7}, "logits", None),
    "swapped": ({"wrong": swapped_rows}, "layers.0.out", None),
    "log-probabilities": ({"wrong": changed("logprobs", lambda x: x - 0.25)}, "logprobs", None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("server", ["plain", "cached", "speculating"])
def test_a_mistake_is_named(tmp_path, mistake, server):
    how, name, where = MISTAKES[mistake]
    runs = record_trainer(tmp_path), record_engine(tmp_path, SERVERS[server], **how)
    diff = tenscope.diff(*runs, rows="request,position")
    assert diff.first_divergence.name == name, str(diff)
    if where:
        assert where in diff.json["first_divergence"]["metrics"]["rows"], str(diff)
    if mistake == "temperature":
        assert diff.first_divergence.metrics.relation.startswith("b = 1.4285"), str(diff)


def test_log_probabilities_stand_side_by_side(tmp_path):
    runs = record_trainer(tmp_path), record_engine(tmp_path, temperature=0.8)
    diff = tenscope.diff(*runs, rows="request,position")
    (table,) = diff.json["rows"]["tables"]
    keys = [tuple(one["key"]) for one in table["rows"]]
    assert sorted(keys) == sorted((r, p) for r, length in LENGTHS.items() for p in range(length))
    ratios = np.exp([one["b"] - one["a"] for one in table["rows"]])
    clipped = int(np.sum(np.abs(ratios - 1) > 0.2))
    assert f"from {ratios.min():.4g} to {ratios.max():.4g}, {clipped} of {len(keys)} beyond 0.8 to 1.2" in str(diff)
    estimate = np.mean(ratios - 1 - np.log(ratios))
    assert f"KL(a, b) about {estimate:.2g}" in str(diff)


class OffByOne(Engine):
    def step(self, rows, following=None, keys=True):
        self.run.record("request", np.array([r for r, _, _ in rows]))
        self.run.record("position", np.array([p + 1 for _, p, _ in rows]))
        self.run.record("token", np.array([t for _, _, t in rows]))
        super().step(rows, following, keys=False)


def test_positions_that_are_off_by_one_are_told(tmp_path):
    trainer = record_trainer(tmp_path)
    with tenscope.Run(tmp_path, name="off", metadata=False) as run:
        plain(OffByOne(run))
    diff = tenscope.diff(trainer, tmp_path / "off", rows="request,position")
    assert diff.first_divergence.name == "token"
    assert diff.first_divergence.metrics.relation.startswith("b at position n is a at position n - 1"), str(diff)


def test_log_probabilities_one_row_further_are_told(tmp_path):
    """Those of the token that a row is given, in place of those of the token that follows it."""
    trainer = record_trainer(tmp_path)
    shifted = {}
    for request in LENGTHS:
        logits = Engine().forward(rows_of(request))
        own = log_softmax(logits)[np.arange(len(logits)), [next_token(r, p) for r, p, _ in rows_of(request)]]
        shifted.update({(request, p): number for p, number in enumerate(np.roll(own, 1))})

    def wrong(name, x, rows):
        return np.array([shifted[r, p] for r, p, _ in rows], np.float32) if name == "logprobs" else x

    diff = tenscope.diff(trainer, record_engine(tmp_path, wrong=wrong), rows="request,position")
    assert diff.first_divergence.name == "logprobs"
    assert diff.first_divergence.metrics.relation.startswith("b at position n is a at position n - 1"), str(diff)


def test_requests_that_are_exchanged_are_told(tmp_path):
    def exchanged(name, x, rows):
        if name != "layers.1.out":
            return x
        x, place = x.copy(), {(r, p): i for i, (r, p, _) in enumerate(rows)}
        for (request, p), i in place.items():
            if request == 333 and (52, p) in place:
                x[[i, place[52, p]]] = x[[place[52, p], i]]
        return x

    runs = record_trainer(tmp_path), record_engine(tmp_path, chunked, wrong=exchanged)
    diff = tenscope.diff(*runs, rows="request,position")
    assert diff.first_divergence.name == "layers.1.out"
    assert diff.first_divergence.metrics.relation == "the rows of request 52 and request 333 are exchanged", str(diff)


def test_what_has_rows_of_its_own_has_keys_of_its_own(tmp_path):
    """Log-probabilities of answers alone: their keys are recorded once more, in front of them."""
    h = {key: RANDOM.standard_normal(4).astype(np.float32) for key in itertools.product((1, 2), range(5))}
    logprobs = {key: np.float32(-RANDOM.random()) for key in h if key[1] >= 3}

    def record(name, orders, change=0.0):
        with tenscope.Run(tmp_path, name=name, metadata=False) as run:
            for order in orders:
                for key, values in (("h", h), ("logprobs", logprobs)):
                    rows = [row for row in order if row in values]
                    run.record("request", np.array([r for r, _ in rows], int))
                    run.record("position", np.array([p for _, p in rows], int))
                    if rows and (key == "h" or len(rows) > 1):
                        run.record(key, np.array([values[row] + change * (key == "logprobs") for row in rows]))
                    elif rows:  # one token: a number
                        run.record(key, float(values[rows[0]] + change))
                run.step()
        return tmp_path / name

    trainer = record("trainer", [sorted(h)])
    steps = [[(2, 0), (2, 1), (2, 2), (1, 0), (1, 1)], [], [(1, 2), (2, 3), (1, 3)], [(2, 4)], [(1, 4)]]
    diff = tenscope.diff(trainer, record("engine", steps), rows="request,position")
    assert diff.verdict == "equal", str(diff)
    rows = diff.json["rows"]
    assert (rows["first_run"], rows["second_run"], rows["common"], rows["duplicates"]) == (10, 10, 10, 0), str(diff)
    wrong = tenscope.diff(trainer, record("wrong", steps, change=-0.5), rows="request,position")
    assert wrong.first_divergence.name == "logprobs" and "b = a - 0.5" in str(wrong)
