# What nanobind cannot know of _core, for its stubs (make stubs): functions in plain C, and what Python adds to it.

_core.__prefix__:
    from typing import Any, Literal

    _Kind = Literal["value", "enter", "exit", "change", "step", "note", "dropped"]

_core.record$:
    def record(
        name: object,
        value: Any = ...,
        *,
        kind: _Kind | None = None,
        step: int | None = None,
        call: int | None = None,
        site: str | None = None,
        scope: str | None = None,
        io: str | None = None,
        phase: str | None = None,
        root: str | None = None,
        cls: str | None = None,
        task: str | None = None,
        meta: dict[str, Any] | str | None = None,
        inputs: list[str] | tuple[str, ...] | None = None,
        file: str | None = None,
        values: Literal["full", "stats"] = "full",
    ) -> None:
        \doc

_core.Run.record$:
    def record(
        self,
        name: object,
        value: Any = ...,
        *,
        kind: _Kind | None = None,
        step: int | None = None,
        call: int | None = None,
        site: str | None = None,
        scope: str | None = None,
        io: str | None = None,
        phase: str | None = None,
        root: str | None = None,
        cls: str | None = None,
        task: str | None = None,
        meta: dict[str, Any] | str | None = None,
        inputs: list[str] | tuple[str, ...] | None = None,
        file: str | None = None,
        values: Literal["full", "stats"] = "full",
    ) -> None:
        """The same into this run."""

_core.spy$:
    def spy(name: str, value: Any, module: Any = None) -> None:
        """Records a value from inside a forward while a trace or a context is active; does nothing otherwise."""

_core.__suffix__:
    def spy_active(name: str, value: Any, module: Any = None) -> None:
        """What spy hands on to while somebody listens; set by the Python package."""

_core.TensorValue.__suffix__:
    def numpy(self) -> numpy.ndarray: ...
    def torch(self) -> Any: ...
    def tolist(self) -> list: ...
    def item(self) -> Any: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...

_core.Changes.__suffix__:
    def frame(self) -> Any: ...
