"""Expert parallel: every rank has a part of the batch and some of the experts; tokens go where their experts are."""

from __future__ import annotations

import megatron
import torch
import torch.distributed as dist
import training
from model import EXPERTS, GPT, MoE
from torch import Tensor, nn

BUGS = ("mapping", "unpermuted", "expert_scale", "router_unsynced", "expert_reduced", "gather_shift", "same_batch")

options = training.parser(*BUGS)
options.add_argument("--gather", action="store_true", help="every rank sees all tokens; experts keep their numbers")
options = options.parse_args()
rank, ranks = training.start()
everyone = dist.group.WORLD
local = EXPERTS // ranks


class Exchange(torch.autograd.Function):
    """Rows to and from all ranks: `sent` of them to each, `received` from each."""

    @staticmethod
    def forward(ctx, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sent, ctx.received = sent, received
        result = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(result, rows.contiguous(), received, sent)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        return Exchange.apply(gradient, ctx.received, ctx.sent), None, None


class ExchangedMoE(MoE):
    """Tokens are sorted by expert, sent to the rank that has it, and come back."""

    bug: str | None = None

    def keep_local(self) -> None:
        self.experts = nn.ModuleList(list(self.experts)[rank * local : (rank + 1) * local])

    def run_experts(self, rows: Tensor, numbers: Tensor) -> Tensor:
        result = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            mine = torch.where(numbers == number)[0]
            result = result.index_add(0, mine, expert(rows[mine]))
        return result

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.route(tokens)
        owners = (chosen % ranks if self.bug == "mapping" else chosen // local).flatten()
        order = owners.argsort(stable=True)
        sent = owners.bincount(minlength=ranks)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sent, received = sent.tolist(), received.tolist()
        rows = Exchange.apply(tokens[order // 2], sent, received)
        numbers = Exchange.apply(chosen.flatten()[order], sent, received)
        back = Exchange.apply(self.run_experts(rows, numbers % local), received, sent)
        if self.bug == "unpermuted":
            order = order.roll(1)
        restored = torch.zeros_like(back).index_copy(0, order, back).view(len(tokens), 2, -1)
        return (restored * weights[..., None]).sum(1).view_as(x)


class GatheredMoE(MoE):
    """Every rank sees all tokens, and adds what its experts make of them."""

    bug: str | None = None

    def keep_local(self) -> None:
        owned = range(rank * local, (rank + 1) * local)
        self.experts = nn.ModuleDict({str(number): self.experts[number] for number in owned})

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.route(x.flatten(0, 1))
        tokens = megatron.Gather.apply(x.flatten(0, 1), 0, everyone, True)
        weights = megatron.Gather.apply(weights, 0, everyone, True)
        chosen = megatron.gather(chosen, 0, everyone)
        result = torch.zeros_like(tokens)
        for name, expert in self.experts.items():
            rows, slot = torch.where(chosen == int(name))
            result = result.index_add(0, rows, expert(tokens[rows]) * weights[rows, slot, None])
        if self.bug == "gather_shift" and rank == 1:
            result = result.roll(1, 0)
        return megatron.Split.apply(result, 0, everyone, True).view_as(x)


def sync_gradients(model: GPT) -> None:
    """Experts have seen the tokens of all ranks; of the rest each rank has its own gradient."""
    for name, parameter in model.named_parameters():
        is_expert = ".experts." in name
        if options.bug == "router_unsynced" and name == "blocks.0.mlp.router.weight":
            continue
        if not is_expert or (options.bug == "expert_reduced" and name.startswith("blocks.1.")):
            dist.all_reduce(parameter.grad)
        if not (is_expert and options.bug == "expert_scale"):
            parameter.grad /= ranks


def whole_names(model: GPT) -> dict[str, Tensor]:
    found = {}
    for name, value in training.state(model).items():
        head, mark, tail = name.partition(".experts.")
        if mark and not options.gather:
            number, _, rest = tail.partition(".")
            name = f"{head}.experts.{int(number) + rank * local}.{rest}"
        found[name] = value
    return found


options.moe = True
model = training.make_model(options)
for block in model.blocks:
    block.mlp.__class__ = GatheredMoE if options.gather else ExchangedMoE
    block.mlp.keep_local()
model.blocks[0].mlp.bug = options.bug
optimizer = training.make_optimizer(options, model)
for step in range(training.STEPS):
    ids, targets = training.part_of(step, 0 if options.bug == "same_batch" else rank, ranks)
    optimizer.zero_grad()
    training.loss_of(model(ids), targets).backward()
    sync_gradients(model)
    optimizer.step()
if options.check:
    training.check(options, whole_names(model))
else:
    dist.destroy_process_group()
