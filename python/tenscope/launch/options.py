"""What `tenscope run` was asked to record; its child processes read it from the environment."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Options:
    stats: bool = False
    include: list[str] = dataclasses.field(default_factory=list)
    exclude: list[str] = dataclasses.field(default_factory=list)
    every: int = 1
    first_step: int = 0
    end_step: int | None = None
    max_bytes: int = 0
    sources: bool = True
    ops: list[str] = dataclasses.field(default_factory=list)  # modules, or :data, :loss, :optimizer, :all
    ops_first_step: int = 0
    ops_end_step: int | None = None
    ops_call: int | None = None  # only in this call of the modules
    ops_values: str = "full"
    oracle: str | None = None  # the module of which one call is made once more in a wider type
    oracle_call: int = 0
    move: int | None = None  # the seed by which parameters and inputs are moved by half a unit, for tenscope noise
    other_kernels: bool = False  # torch computes attention by other kernels
    end_after: int | None = None  # the program is ended when this step is over
    against: str = ""  # the run that it is compared with while it runs
    on_divergence: str = "stop"  # "stop", "pdb" or "keep"
    prefix: bool = False
    tolerance: float | None = None

    def wants_step(self, step: int) -> bool:
        return self.first_step <= step and (self.end_step is None or step < self.end_step) and step % self.every == 0

    def wants_ops(self, step: int) -> bool:
        return self.ops_first_step <= step and (self.ops_end_step is None or step < self.ops_end_step)
