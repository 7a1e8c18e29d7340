"""Small models and training programs as descriptions, built in a plain form or rewritten, right or with one mistake.

Overview. A model is a tree of nodes; in the plain form each is a module, and its key is its path. A rewrite changes how
a node is written and nothing of what is computed; several apply on top of each other. A mistake changes what one node,
or the program around it, computes. Every module that stands for a node has its key, whatever its path has become: so a
test knows where a mistake must be found.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HIDDEN, HEADS, LENGTH, BATCH = 11, 8, 12, 2, 5, 3
CHAINS = ("mlp", "residual", "group", "model")  # their code calls their children in a row
CONTAINERS = (*CHAINS, "attention", "branches", "twice")
LEAVES = ("linear", "norm", "act", "dropout", "conv", "embedding")


@dataclass(frozen=True)
class Node:
    kind: str
    name: str
    key: str = ""
    children: tuple[Node, ...] = ()
    sizes: tuple[int, int] = (WIDTH, WIDTH)
    tied_to: str = ""  # its weight is that node's

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()

    def takes_mask(self) -> bool:
        return any(node.kind == "attention" for node in self.walk())


def keyed(node: Node, key: str = "") -> Node:
    """The same tree with the path of each node as its key."""
    children = tuple(keyed(child, f"{key}.{child.name}" if key else child.name) for child in node.children)
    return Node(node.kind, node.name, key, children, node.sizes, node.tied_to)


@dataclass(frozen=True)
class Rewrite:
    kind: str
    key: str = ""  # of the node; empty: of the model or the program
    words: tuple = ()


@dataclass(frozen=True)
class Mistake:
    kind: str
    key: str = ""


@dataclass(frozen=True)
class Program:
    model: Node
    steps: int = 1
    optimizer: str = "SGD"
    mask: str = "causal"  # or "full", "padding"


def seeded(*words) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(repr(words).encode()))


@dataclass
class Builder:
    program: Program
    rewrites: tuple[Rewrite, ...] = ()
    mistake: Mistake | None = None
    parameters: dict[tuple[str, str], nn.Parameter] = field(default_factory=dict)

    def of(self, node: Node, kind: str) -> Rewrite | None:
        """The last of the rewrites of one kind that a node has."""
        found = [rewrite for rewrite in self.rewrites if rewrite.kind == kind and rewrite.key == node.key]
        return found[-1] if found and node.kind != "group" else None

    def is_wrong(self, node: Node, kind: str) -> bool:
        return self.mistake is not None and (kind, node.key) == (self.mistake.kind, self.mistake.key)

    def parameter(self, node: Node, name: str) -> nn.Parameter:
        if node.tied_to and name == "weight":
            node = next(other for other in self.program.model.walk() if other.key == node.tied_to)
        known = self.parameters.get((node.key, name))
        if known is not None:
            return known
        given, made = node.sizes
        shapes = {
            ("linear", "weight"): (made, given), ("linear", "bias"): (made,), ("embedding", "weight"): (given, made),
            ("norm", "weight"): (made,), ("norm", "bias"): (made,), ("conv", "weight"): (made, given, 3),
            ("conv", "bias"): (made,),
        }  # fmt: skip
        values = torch.randn(shapes[node.kind, name], generator=seeded(node.key, name))
        if name == "weight" and self.is_wrong(node, "init"):
            values = torch.randn(values.shape, generator=seeded("other", node.key, name))
        if name == "weight":
            values = 1 + 0.2 * values if node.kind == "norm" else values / values[0].numel() ** 0.5
        else:
            values = 0.1 * values
        if name == "weight" and self.is_wrong(node, "transposed"):
            values = values.T.contiguous()
        found = self.parameters[node.key, name] = nn.Parameter(values)
        found.requires_grad_(not (name == "weight" and self.is_wrong(node, "frozen")))
        return found

    # How a node is built.

    def parts(self, node: Node) -> list[Node]:
        """A container's children, of which some may stand in a module of their own."""
        parts = list(node.children)
        group = self.of(node, "group")
        if group is None or node.kind not in CHAINS:
            return parts
        begin, end, name = group.words
        first = next((i for i, part in enumerate(parts) if part.kind != "embedding"), len(parts))
        grouped = parts[first:][begin:end]
        if not grouped:
            return parts
        rest = [part for part in parts if part not in grouped]
        rest.insert(parts.index(grouped[0]), Node("group", name, f"{node.key}/{name}", tuple(grouped)))
        return rest

    def build(self, node: Node) -> nn.Module:
        module = self.own_module(node)
        if cls := self.of(node, "class"):
            module.__class__ = type(cls.words[0], (type(module),), {})
        if node.kind != "group":
            module.key = node.key
        for rewrite in self.rewrites:
            if rewrite.kind == "wrap" and rewrite.key == node.key and node.kind != "group":
                module = Wrapper.around(module, *rewrite.words)
        return module

    def own_module(self, node: Node) -> nn.Module:
        if node.kind in CONTAINERS:
            if node.kind == "mlp" and self.of(node, "sequential"):
                parts = self.parts(node)
                if not any(self.of(part, "inline") or self.of(part, "identity") for part in parts):
                    return nn.Sequential(*[self.build(part) for part in parts])
            return Part(self, node)
        if self.of(node, "own"):
            return Part(self, node)
        given, made = node.sizes
        bias = not node.tied_to
        module = {
            "linear": lambda: nn.Linear(given, made, bias=bias),
            "norm": lambda: nn.LayerNorm(made, eps=self.eps(node)),
            "act": lambda: nn.ReLU() if self.is_wrong(node, "act") else nn.GELU(),
            "dropout": lambda: nn.Dropout(self.rate(node)),
            "conv": lambda: Convolution(given, made, 3, padding=1),
            "embedding": lambda: nn.Embedding(given, made),
        }[node.kind]()
        for name in self.parameter_names(node):
            setattr(module, name, self.parameter(node, name))
        return module

    def parameter_names(self, node: Node) -> tuple[str, ...]:
        if node.kind not in LEAVES or node.kind in ("act", "dropout"):
            return ()
        return ("weight",) if node.kind == "embedding" or node.tied_to else ("weight", "bias")

    def eps(self, node: Node) -> float:
        return 1e-3 if self.is_wrong(node, "eps") else 1e-5

    def rate(self, node: Node) -> float:
        return 0.5 if self.is_wrong(node, "dropout") else 0.0


class Convolution(nn.Conv1d):
    """Over the second axis."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Wrapper(nn.Module):
    @staticmethod
    def around(module: nn.Module, cls: str, name: str) -> Wrapper:
        wrapper = type(cls, (Wrapper,), {})()
        wrapper.name = name
        wrapper.add_module(name, module)
        return wrapper

    def forward(self, *args, **kwargs):
        return getattr(self, self.name)(*args, **kwargs)


class Part(nn.Module):
    """A module whose code is that of a node, and of those of its children that are no modules of their own."""

    def __init__(self, builder: Builder, node: Node):
        super().__init__()
        self.builder, self.node = builder, node
        self.names: dict[tuple[str, str], str] = {}
        members: dict[str, nn.Module | nn.Parameter] = {}
        self.adopt(node, "", members)
        is_backwards = builder.of(node, "define")
        for name in reversed(members) if is_backwards else members:
            setattr(self, name, members[name])
        self.__class__ = type(node.kind.capitalize(), (Part,), {})

    def add(self, members: dict, node: Node, what: str, name: str, member) -> None:
        while name in members or hasattr(self, name):
            name += "_"
        members[name] = member
        self.names[node.key, what] = name

    def adopt(self, node: Node, prefix: str, members: dict) -> None:
        builder = self.builder
        for name in builder.parameter_names(node):
            self.add(members, node, name, prefix + name, builder.parameter(node, name))
        if node.kind == "attention" and builder.of(node, "fuse"):
            joined = Fused(builder, node)
            self.add(members, node, "fused", prefix + "qkv", joined)
        for child in builder.parts(node):
            if node.kind == "attention" and builder.of(node, "fuse") and child.name in ("q", "k", "v"):
                continue
            if identity := builder.of(child, "identity"):
                self.add(members, child, "identity", identity.words[0], nn.Identity())
            if builder.of(child, "inline"):
                self.adopt(child, f"{prefix}{child.name}_", members)
            else:
                rename = builder.of(child, "rename")
                module = builder.build(child)
                self.add(members, child, "module", rename.words[0] if rename else prefix + child.name, module)
                if node.kind == "twice" and builder.of(node, "alias"):
                    self.add(members, child, "again", prefix + child.name + "_again", module)

    def its(self, node: Node, what: str):
        name = self.names.get((node.key, what))
        return None if name is None else getattr(self, name)

    def forward(self, x, mask=None):
        return self.code(self.node, x, mask)

    # The code of a node, in this module.

    def call(self, node: Node, x, mask=None, what: str = "module"):
        builder = self.builder
        identity = builder.of(node, "identity")
        if identity and identity.words[1] == "before":
            x = self.its(node, "identity")(x)
        if builder.of(node, "inline"):
            result = self.code(node, x, mask)
        else:
            module = self.its(node, what)
            args, kwargs = [x], {}
            if node.takes_mask() and mask is not None:
                form = builder.of(node, "mask")
                mask = in_form(mask, form.words[0]) if form else mask
                if builder.of(node, "keyword"):
                    kwargs["mask"] = mask
                else:
                    args.append(mask)
            if builder.of(node, "checkpoint"):
                result = checkpoint(module, *args, **kwargs, use_reentrant=False)
            else:
                result = module(*args, **kwargs)
        if isinstance(result, tuple):
            result = result[0]
        if identity and identity.words[1] == "after":
            result = self.its(node, "identity")(result)
        return result

    def chain(self, node: Node, parts: list[Node], x, mask):
        for i, part in enumerate(parts):
            if i == len(parts) - 1 and self.builder.is_wrong(node, "detach"):
                x = x.detach()
            x = self.call(part, x, mask)
        return x

    def code(self, node: Node, x, mask):
        result = getattr(self, f"code_of_{node.kind}")(node, x, mask)
        if self.builder.of(node, "tuple"):
            return result if isinstance(result, tuple) else (result, x)
        return result

    def code_of_group(self, node, x, mask):
        return self.chain(node, self.builder.parts(node), x, mask)

    code_of_mlp = code_of_group

    def code_of_residual(self, node, x, mask):
        y = self.chain(node, self.builder.parts(node), x, mask)
        if self.builder.is_wrong(node, "residual"):
            return y
        return y + x if self.builder.of(node, "order") else x + y

    def code_of_branches(self, node, x, mask):
        left, right = node.children
        if self.builder.of(node, "order"):
            second = self.call(right, x, mask)
            return self.call(left, x, mask) + second
        return self.call(left, x, mask) + self.call(right, x, mask)

    def code_of_twice(self, node, x, mask):
        x = self.call(node.children[0], x, mask)
        if self.builder.is_wrong(node, "once"):
            return x
        return self.call(node.children[0], x, mask, "again" if self.builder.of(node, "alias") else "module")

    def code_of_model(self, node, ids, mask):
        parts = self.builder.parts(node)
        x = self.call(parts[0], ids)
        if parts[1].kind == "embedding":
            shift = 1 if self.builder.is_wrong(node, "position") else 0
            x = x + self.call(parts[1], torch.arange(ids.shape[1]) + shift)
        return self.chain(node, [part for part in parts if part.kind != "embedding"], x, mask)

    def code_of_attention(self, node, x, mask):
        builder = self.builder
        q, k, v, o = node.children
        if builder.of(node, "fuse"):
            heads = self.its(node, "fused")(x).chunk(3, dim=-1)
        elif builder.of(node, "order"):
            value, key, query = (self.call(part, x) for part in (v, k, q))
            heads = (query, key, value)
        else:
            heads = [self.call(part, x) for part in (q, k, v)]
        batch, length, width = x.shape
        query, key, value = (z.reshape(batch, length, HEADS, -1).transpose(1, 2) for z in heads)
        scale = 1.0 if builder.is_wrong(node, "scale") else (width // HEADS) ** -0.5
        if builder.is_wrong(node, "mask"):
            mask = None
        weights = None
        if builder.of(node, "sdpa"):
            y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
        else:
            scores = query @ key.transpose(-1, -2) * scale
            if mask is not None and mask.dtype == torch.bool:
                scores = scores.masked_fill(~mask, float("-inf"))
            elif mask is not None:
                scores = scores + mask
            weights = scores.softmax(-1)
            y = weights @ value
        y = self.call(o, y.transpose(1, 2).reshape(batch, length, width))
        return (y, weights) if builder.of(node, "tuple") and weights is not None else y

    def code_of_linear(self, node, x, mask):
        return F.linear(x, self.its(node, "weight"), self.its(node, "bias"))

    def code_of_norm(self, node, x, mask):
        eps = self.builder.eps(node)
        if self.builder.of(node, "own") is None:
            return F.layer_norm(x, x.shape[-1:], self.its(node, "weight"), self.its(node, "bias"), eps)
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
        return scaled * self.its(node, "weight") + self.its(node, "bias")

    def code_of_act(self, node, x, mask):
        return F.relu(x) if self.builder.is_wrong(node, "act") else F.gelu(x)

    def code_of_dropout(self, node, x, mask):
        rate = self.builder.rate(node)
        return F.dropout(x, rate) if rate > 0 else x

    def code_of_conv(self, node, x, mask):
        padded = F.pad(x.transpose(1, 2), (1, 1))
        return F.conv1d(padded, self.its(node, "weight"), self.its(node, "bias")).transpose(1, 2)

    def code_of_embedding(self, node, ids, mask):
        return F.embedding(ids, self.its(node, "weight"))


class Fused(nn.Linear):
    """The linear maps to queries, keys and values as one."""

    def __init__(self, builder: Builder, node: Node):
        super().__init__(WIDTH, 3 * WIDTH)
        for name in ("weight", "bias"):
            parts = [builder.parameter(child, name).detach() for child in node.children[:3]]
            setattr(self, name, nn.Parameter(torch.cat(parts)))
        self.__class__ = nn.Linear


def in_form(mask: torch.Tensor, form: str) -> torch.Tensor | None:
    """The same mask, written in another way."""
    if mask is None:
        return None
    if form == "none":  # where there is nothing to mask
        is_all = bool(mask.all()) if mask.dtype == torch.bool else bool((mask == 0).all())
        return None if is_all else mask
    if form == "expanded":
        return mask.expand(BATCH, HEADS, LENGTH, LENGTH)
    if form == "number" and mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    if form == "bool" and mask.dtype != torch.bool:
        return mask == 0
    return mask


def make_mask(program: Program) -> torch.Tensor:
    square = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    if program.mask == "causal":
        return square.tril()[None, None]
    if program.mask == "padding":
        lengths = torch.tensor([LENGTH, LENGTH - 1, LENGTH - 2])
        return (torch.arange(LENGTH) < lengths[:, None])[:, None, None, :]
    return square[None, None]


@dataclass
class Written:
    """A program as it is run: the model in some form, and what is around it."""

    program: Program
    rewrites: tuple[Rewrite, ...] = ()
    mistake: Mistake | None = None

    def __post_init__(self):
        builder = Builder(self.program, self.rewrites, self.mistake)
        self.model = builder.build(self.program.model)
        self.paths = {module.key: path for path, module in self.model.named_modules() if hasattr(module, "key")}
        self.parameters = builder.parameters

    def owners(self, key: str) -> list[str]:
        """The paths of the modules that a node's weight belongs to."""
        weight = self.parameters.get((key, "weight"), self)
        modules = self.model.named_modules()
        return [path for path, module in modules if any(own is weight for own in module._parameters.values())]

    def has(self, kind: str) -> Rewrite | None:
        return next((rewrite for rewrite in reversed(self.rewrites) if rewrite.kind == kind and not rewrite.key), None)

    def is_wrong(self, kind: str) -> bool:
        return self.mistake is not None and self.mistake.kind == kind

    def optimizer(self):
        given = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if self.is_wrong("left out"):
            left_out = self.parameters[self.mistake.key, "weight"]
            given = [parameter for parameter in given if parameter is not left_out]
        rate = 0.05 if self.program.optimizer == "SGD" else 0.01
        if self.is_wrong("rate"):
            rate *= 1.1
        if self.program.optimizer == "SGD":
            return torch.optim.SGD(given, lr=rate, momentum=0.9)
        return torch.optim.Adam(given, lr=rate)

    def run(self, on_loss=lambda loss: None) -> list[torch.Tensor]:
        """Trains. What comes out: the logits and the loss of each step."""
        torch.manual_seed(0)
        optimizer = self.optimizer()
        results = []
        for step in range(self.program.steps):
            random = seeded("data", step)
            ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=random)
            wanted = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=random).flatten()
            if self.has("int32"):
                ids = ids.int()
            mask = make_mask(self.program)
            if form := self.has("mask"):
                mask = in_form(mask, form.words[0])
            args, kwargs = ([ids], {"mask": mask}) if self.has("keyword") else ([ids, mask], {})
            logits = self.model(*args, **kwargs)
            if isinstance(logits, tuple):
                logits = logits[0]
            loss = self.loss(logits.reshape(-1, VOCABULARY), wanted)
            if not self.is_wrong("zero grad"):
                optimizer.zero_grad(set_to_none=not self.has("zeros"))
            on_loss(loss)
            loss.backward()
            optimizer.step()
            results += [logits.detach(), loss.detach()]
        return results

    def loss(self, logits, wanted):
        if self.is_wrong("reduction"):
            return F.cross_entropy(logits, wanted, reduction="sum")
        if self.has("loss"):
            return F.nll_loss(logits.log_softmax(-1), wanted)
        return F.cross_entropy(logits, wanted)
