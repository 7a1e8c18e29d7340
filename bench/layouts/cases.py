"""The layouts, and the mistakes with what is right to blame for them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """One way to train a model; all of a group train the same, the first of them in one process."""

    name: str
    group: str
    ranks: int
    program: str
    arguments: tuple[str, ...] = ()
    names: dict[int, dict[str, str]] = field(default_factory=dict, compare=False)  # by rank: own name, whole's


@dataclass(frozen=True)
class Mistake:
    """Modules are those of one process, as patterns; "" is the loop, the loss or the data."""

    layout: str
    bug: str
    modules: tuple[str, ...]
    phases: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.layout}.{self.bug}"


def of_group(group: str, *layouts: tuple) -> list[Layout]:
    flag = () if group == "gpt" else (f"--{group}",)
    made = []
    for name, ranks, command, *names in layouts:
        program, *arguments = command.split()
        made.append(Layout(name, group, ranks, f"{program}.py", (*arguments, *flag), *names))
    return made


RENUMBERED = {
    0: {"0": "", "0.tok": "tok", "0.pos": "pos", "1": "blocks.0"},
    1: {"0": "blocks.1", "1": "norm", "2": "head"},
}

LAYOUTS = [
    *of_group(
        "gpt",
        ("single", 1, "single"),
        ("accum2", 1, "single --micro 2"),
        ("accum4", 1, "single --micro 4"),
        ("ddp2", 2, "data_parallel --kind ddp"),
        ("hand_dp2", 2, "data_parallel --kind hand"),
        ("fsdp2", 2, "data_parallel --kind fsdp"),
        ("tp2", 2, "tensor_dtensor"),
        ("sp2", 2, "tensor_dtensor --sequence"),
        ("mega2", 2, "tensor_by_hand"),
        ("mega_sp2", 2, "tensor_by_hand --sequence"),
        ("pp2", 2, "pipeline"),
        ("pp_seq2", 2, "pipeline --schedule 1f1b --sequential", RENUMBERED),
        ("cp2", 2, "context"),
        ("cp_zigzag2", 2, "context --zigzag"),
        ("ddp4", 4, "data_parallel --kind ddp"),
        ("fsdp4", 4, "data_parallel --kind fsdp"),
        ("hsdp4", 4, "data_parallel --kind fsdp --replicas 2"),
        ("tp4", 4, "tensor_dtensor"),
        ("mega4", 4, "tensor_by_hand"),
        ("pp4", 4, "pipeline --stages 4 --schedule 1f1b"),
        ("cp_zigzag4", 4, "context --zigzag"),
        ("dp2_tp2", 4, "tensor_by_hand --data 2"),
        ("fsdp2_tp2", 4, "tensor_dtensor --data 2"),
        ("dp2_pp2", 4, "pipeline --data 2 --micro 2"),
        ("fsdp8", 8, "data_parallel --kind fsdp"),
        ("dp2_tp2_pp2", 8, "pipeline --data 2 --micro 2"),
    ),
    *of_group(
        "fused",
        ("single_fused", 1, "single"),
        ("mega_fused2", 2, "tensor_by_hand"),
        ("mega_fused4", 4, "tensor_by_hand"),
        ("fsdp_fused2", 2, "data_parallel --kind fsdp"),
    ),
    *of_group(
        "grouped",
        ("single_grouped", 1, "single"),
        ("mega_grouped2", 2, "tensor_by_hand"),
        ("fsdp_grouped2", 2, "data_parallel --kind fsdp"),
    ),
    *of_group(
        "criterion",
        ("single_criterion", 1, "single"),
        ("accum_criterion2", 1, "single --micro 2"),
        ("ddp_criterion2", 2, "data_parallel --kind ddp"),
    ),
    *of_group(
        "tied",
        ("single_tied", 1, "single"),
        ("pp_tied2", 2, "pipeline"),
        ("ddp_tied2", 2, "data_parallel --kind ddp"),
    ),
    *of_group("clip", ("single_clip", 1, "single"), ("mega_clip2", 2, "tensor_by_hand")),
    *of_group(
        "moe",
        ("single_moe", 1, "single"),
        ("ep2", 2, "experts"),
        ("ep_gather2", 2, "experts --gather"),
        ("ddp_moe2", 2, "data_parallel --kind ddp"),
        ("ep4", 4, "experts"),
    ),
    *of_group(
        "adamw",
        ("single_adamw", 1, "single"),
        ("ddp_adamw2", 2, "data_parallel --kind ddp"),
        ("fsdp_adamw2", 2, "data_parallel --kind fsdp"),
        ("mega_adamw2", 2, "tensor_by_hand"),
        ("pp_adamw2", 2, "pipeline"),
    ),
    *of_group(
        "bf16",
        ("single_bf16", 1, "single"),
        ("ddp_bf16", 2, "data_parallel --kind ddp"),
        ("mega_bf16", 2, "tensor_by_hand"),
    ),
]

# What a rank alone knows of a gradient is seen in the backward where it is synchronised there, else before the step.
SYNC = ("backward", "optimizer")
LOOP = ("",)
GRADIENTS = ("", "tok")  # all gradients are wrong: the loop, or what stands first
LAST_STAGE = ("", "blocks.1", "blocks.1.*", "norm", "head")
EXPERTS = ("", "blocks.*.mlp", "blocks.*.mlp.experts.*")

MISTAKES = [
    Mistake("accum4", "loss_scale", LOOP, ("backward",)),
    Mistake("accum2", "no_zero_grad", GRADIENTS, SYNC),
    Mistake("accum4", "zero_inside", GRADIENTS, SYNC),
    Mistake("accum4", "dropped", LOOP, ("forward", "backward")),
    Mistake("hand_dp2", "unsynced", ("blocks.1.mlp.up",), SYNC),
    Mistake("hand_dp2", "summed", GRADIENTS, SYNC),
    Mistake("hand_dp2", "init_seed", ("blocks.0.mlp.down",), ("init",)),
    Mistake("ddp2", "same_batch", LOOP, ("forward",)),
    Mistake("ddp4", "same_batch", LOOP, ("forward",)),
    Mistake("ddp2", "no_sync", GRADIENTS, SYNC),
    Mistake("fsdp2", "summed", GRADIENTS, SYNC),
    Mistake("fsdp2", "unsynced", ("blocks.1.norm1",), SYNC),
    Mistake("fsdp4", "frozen_shard", ("blocks.1.attn.proj",), SYNC),
    Mistake("tp2", "no_reduce", ("blocks.0.mlp.down", "blocks.0.mlp"), ("forward",)),
    Mistake("tp4", "swapped", ("blocks.1.attn.q",), ("init",)),
    Mistake("tp2", "norm_drift", ("blocks.0.norm2",), SYNC),
    Mistake("sp2", "norm_left_out", ("blocks.1.norm1",), SYNC),
    Mistake("fsdp2_tp2", "wrong_batch", LOOP, ("forward",)),
    Mistake("mega2", "no_reduce", ("blocks.0.mlp.down", "blocks.0.mlp"), ("forward",)),
    Mistake("mega4", "reduce_twice", ("blocks.1.attn.proj", "blocks.1.attn"), ("forward",)),
    Mistake("mega2", "swapped", ("blocks.0.mlp.up",), ("init",)),
    Mistake("mega2", "bias_each", ("blocks.0.attn.proj", "blocks.0.attn"), ("forward",)),
    Mistake("mega2", "no_backward_reduce", ("blocks.1.mlp.up", "blocks.1.mlp"), ("backward",)),
    Mistake("mega2", "vocab_offset", ("tok",), ("forward",)),
    Mistake("mega2", "other_init", ("blocks.1.norm2",), ("init",)),
    Mistake("mega_sp2", "norm_grad", ("blocks.0.norm2",), SYNC),
    Mistake("mega_sp2", "gather_order", ("blocks.1.mlp.up", "blocks.1.mlp"), ("forward",)),
    Mistake("mega_fused2", "qkv_contiguous", ("blocks.0.attn.qkv",), ("init",)),
    Mistake("mega_grouped2", "no_backward_reduce", ("blocks.1.mlp.up", "blocks.1.mlp"), ("backward",)),
    Mistake("ddp_criterion2", "same_batch", LOOP, ("forward",)),
    Mistake("accum_criterion2", "loss_scale", LOOP, ("backward",)),
    Mistake("mega_clip2", "clip_local", GRADIENTS, ("optimizer",)),
    Mistake("dp2_tp2", "wrong_group", GRADIENTS, SYNC),
    Mistake("dp2_tp2", "wrong_batch", LOOP, ("forward",)),
    Mistake("pp2", "stale", LAST_STAGE, ("optimizer", "forward")),
    Mistake("pp2", "dropped", LOOP, ("backward",)),
    Mistake("pp2", "half_sent", LOOP, ("forward",)),
    Mistake("pp_seq2", "targets_swapped", LOOP, ("forward", "backward")),
    Mistake("pp_seq2", "other_init", ("blocks.1.mlp.up",), ("init",)),
    Mistake("pp4", "no_scale", GRADIENTS, SYNC),
    Mistake("pp_tied2", "tied_unsynced", ("tok", "head"), SYNC),
    Mistake("dp2_pp2", "stage_unsynced", LAST_STAGE, SYNC),
    Mistake("dp2_pp2", "same_batch", LOOP, ("forward",)),
    Mistake("dp2_tp2_pp2", "no_reduce", ("blocks.0.mlp.down", "blocks.0.mlp"), ("forward",)),
    Mistake("cp2", "positions", ("", "pos"), ("forward",)),
    Mistake("cp2", "mask", ("blocks.0.attn",), ("forward",)),
    Mistake("cp2", "kv_detached", ("blocks.0.attn", "blocks.0.attn.[kv]"), SYNC),
    Mistake("cp2", "labels", LOOP, ("forward", "backward")),
    Mistake("cp_zigzag2", "zigzag_order", ("blocks.1.attn",), ("forward",)),
    Mistake("cp_zigzag4", "unsynced", ("pos",), SYNC),
    Mistake("ep2", "mapping", ("blocks.0.mlp",), ("forward",)),
    Mistake("ep4", "unpermuted", ("blocks.0.mlp",), ("forward",)),
    Mistake("ep2", "expert_scale", EXPERTS, SYNC),
    Mistake("ep2", "router_unsynced", ("blocks.0.mlp.router",), SYNC),
    Mistake("ep2", "expert_reduced", ("", "blocks.1.mlp", "blocks.1.mlp.experts.*"), SYNC),
    Mistake("ep_gather2", "gather_shift", ("blocks.0.mlp",), ("forward",)),
    Mistake("ep_gather2", "same_batch", LOOP, ("forward",)),
    Mistake("ddp_adamw2", "no_sync", GRADIENTS, SYNC),
    Mistake("mega_adamw2", "bias_each", ("blocks.0.attn.proj", "blocks.0.attn"), ("forward",)),
    Mistake("pp_adamw2", "stale", LAST_STAGE, ("optimizer", "forward")),
    Mistake("ddp_bf16", "same_batch", LOOP, ("forward",)),
    Mistake("mega_bf16", "no_reduce", ("blocks.0.mlp.down", "blocks.0.mlp"), ("forward",)),
]

BY_NAME = {layout.name: layout for layout in LAYOUTS}


def group_of(layout: Layout) -> list[Layout]:
    return [other for other in LAYOUTS if other.group == layout.group]


def neighbour(layout: Layout) -> Layout:
    """The next layout of the group but for the first, or the layout itself where there is no other."""
    others = group_of(layout)[1:]
    return others[(others.index(layout) + 1) % len(others)] if layout in others else others[0]
