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

    def wants_step(self, step: int) -> bool:
        return self.first_step <= step and (self.end_step is None or step < self.end_step) and step % self.every == 0
