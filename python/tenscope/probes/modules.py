"""Which name a module has in a recording: its root, its path below it, its call counter."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tenscope.probes.attributes import Attributes
from tenscope.probes.describe import Told
from tenscope.probes.forward import forward_of, look_at
from tenscope.recording.selectors import NameFilter, Unmatched

_WRAPPED_CHILD = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def check_module(module: object, who: str) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(f"{who} takes a torch.nn.Module, not {type(module).__name__}")


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside DDP, DataParallel, FSDP, torch.compile and checkpoint wrappers."""
    while True:
        if isinstance(module, (DistributedDataParallel, DataParallel)):
            module = module.module
            continue
        inner = next((module._modules[name] for name in _WRAPPED_CHILD if name in module._modules), None)
        if inner is None:
            return module
        module = inner


def class_of(module: nn.Module) -> type:
    """The module's class as its author wrote it: fully_shard gives a module a class of its own."""
    fsdp = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    if fsdp is None or not isinstance(module, fsdp):
        return type(module)
    return next(cls for cls in type(module).__mro__ if issubclass(cls, nn.Module) and not issubclass(cls, fsdp))


def plain_paths(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Paths and modules as named_modules() gives them, a shared module once for each of its names."""
    return root.named_modules(remove_duplicate=False)


def unwrapped_paths(root: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The same without wrappers: neither they nor their part of the path."""
    module = unwrap(root)
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from unwrapped_paths(child, f"{path}.{name}" if path else name)


def forward_arguments(module: nn.Module) -> list[str]:
    """The names of the arguments that the module's forward takes by position, in their order."""
    if "forward" in module.__dict__:  # a forward of this module alone, as a library's hooks put there
        return _positional_names(module.forward)
    return _class_arguments(class_of(module).forward)


@functools.lru_cache(maxsize=1024)
def _class_arguments(forward) -> list[str]:
    return _positional_names(forward)[1:]


def _positional_names(function) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in by_position]


class ModuleInfo:
    """What the hooks need of one module, made once."""

    __slots__ = (
        "aliases",
        "attributes",
        "buffer_prints",
        "callable",
        "cls",
        "counter",
        "forward",
        "forward_facts",
        "given",
        "is_described",
        "module",
        "path",
        "prefix",
        "root",
        "wanted",
    )

    def __init__(self, module: nn.Module, path: str, root: Root, wanted: bool):
        self.module = weakref.ref(module)
        self.path = path
        self.prefix = f"{path}." if path else ""
        cls = class_of(module)
        self.cls = cls.__name__
        self.root = root
        self.callable = getattr(cls, "forward", None) is not nn.Module.forward  # a ModuleList is not
        self.forward = forward_of(module)  # as it was when it was looked at
        self.forward_facts = look_at(self.forward, cls)
        self.wanted = wanted
        self.aliases: list[str] = []
        self.given: dict | int | None = None  # the form of the arguments that was told last
        self.attributes: Attributes | None = None  # as they were told last
        self.is_described = False  # an enter event has told what stays the same from call to call
        self.counter = root.counters.setdefault(path, [0])  # calls so far, shared by whatever has this path
        self.buffer_prints: dict[str, object] = {}

    @property
    def site(self) -> str:
        return self.forward_facts.site

    def look_again(self, module: nn.Module) -> None:
        """The program may have replaced the forward; the module is then described once more."""
        self.forward = forward_of(module)
        facts = look_at(self.forward, class_of(module))
        if facts[:3] != self.forward_facts[:3]:
            self.is_described = False
        self.forward_facts = facts


class Root:
    """An outermost module with all that is below it."""

    def __init__(self, label: str, module: nn.Module, counters: dict[str, list[int]]):
        self.label = label
        self.module = weakref.ref(module)
        self.counters = counters
        self.infos: list[ModuleInfo] = []
        self.told = Told()

    def parameters(self) -> Iterator[tuple[ModuleInfo, str, nn.Parameter]]:
        """Owner, name in it, parameter; in the order of named_parameters()."""
        return self._members("_parameters")

    def buffers(self):
        return self._members("_buffers")

    def _members(self, table: str):
        seen = set()
        for info in self.infos:
            module = info.module()
            if module is None:
                continue
            for name, tensor in getattr(module, table).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield info, name, tensor


class Names:
    """Labels of roots and counters of calls: one for a whole run, so that they go on from probe to probe."""

    def __init__(self):
        self._labels: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._per_class: dict[str, int] = {}
        self._counters: dict[str, dict[str, list[int]]] = {}

    def root(self, module: nn.Module) -> Root:
        label = self._labels.get(module)
        if label is None:
            cls = class_of(module).__name__
            order = self._per_class.get(cls, 0)
            self._per_class[cls] = order + 1
            label = self._labels[module] = f"{cls}#{order}"
        return Root(label, module, self._counters.setdefault(label, {}))


class Registry:
    """All modules a probe knows, by identity, without keeping them alive."""

    def __init__(self, names: Names, wanted: Callable[[str, nn.Module], bool], paths=plain_paths):
        self._names = names
        self._wanted = wanted
        self._paths = paths
        self._infos: dict[int, ModuleInfo] = {}
        self._alive: dict[int, weakref.ref] = {}
        self._by_the_way: set[tuple[str, str]] = set()
        self.roots: list[Root] = []
        self.get = self._infos.get

    def add_root(self, module: nn.Module) -> ModuleInfo:
        root = self._names.root(module)
        self._add(root, module)
        inside = {id(info.module()) for info in root.infos}
        self.roots = [known for known in self.roots if known.module() is not None and id(known.module()) not in inside]
        self.roots.append(root)
        return self._infos[id(module)]

    def add_inside(self, parent: ModuleInfo, module: nn.Module) -> ModuleInfo:
        """A module met for the first time inside a known root: registered since, or held by the way."""
        root = parent.root
        root_module = root.module()
        path = f"{parent.prefix}<{type(module).__name__}>"
        if root_module is not None and (root.label, path) not in self._by_the_way:
            self._add(root, root_module)
        if id(module) not in self._infos:  # made anew in each forward, perhaps: no more looking for its kind
            self._by_the_way.add((root.label, path))
            self._add(root, module, path)
        return self._infos[id(module)]

    def _add(self, root: Root, module: nn.Module, path: str = "") -> None:
        order: dict[int, ModuleInfo] = {}
        for below, found in self._paths(module):
            full = f"{path}.{below}" if path and below else path or below
            known = self._infos.get(id(found))
            if known is not None and known.root is root:
                if known.path != full and full not in known.aliases:
                    known.aliases.append(full)
                order.setdefault(id(found), known)
                continue
            info = ModuleInfo(found, full, root, self._wanted(full, found))
            self._infos[id(found)] = info
            self._alive[id(found)] = weakref.ref(found, functools.partial(self._forget, id(found)))
            order[id(found)] = info
        kept = {id(info) for info in order.values()}
        others = [info for info in root.infos if id(info) not in kept and info.module() is not None]
        root.infos = others + list(order.values()) if path else list(order.values()) + others

    def _forget(self, key: int, _) -> None:
        self._infos.pop(key, None)
        self._alive.pop(key, None)


class PathFilter(NameFilter):
    """Which modules are wanted, by path and class. Remembers what it was asked for, to tell what matched nothing."""

    def __init__(self, include=None, exclude=None, classes=None):
        super().__init__(include, exclude)
        self._classes = None if classes is None else (classes,) if isinstance(classes, type) else tuple(classes)
        if not all(isinstance(cls, type) for cls in self._classes or ()):
            raise TypeError(f"classes are types of modules, as torch.nn.Linear, not {classes!r}")
        self._seen_classes: dict[type, None] = {}

    def __call__(self, path: str, module: nn.Module) -> bool:
        is_wanted = self.wants(path)
        if self._classes is not None:
            self._seen_classes[type(module)] = None
            is_wanted = is_wanted and isinstance(module, self._classes)
        return is_wanted

    def unmatched(self, where: str) -> list[Unmatched]:
        names = [cls.__name__ for cls in self._seen_classes]
        return super().unmatched(where) + [
            Unmatched(cls.__name__, where.format("classes"), names)
            for cls in self._classes or ()
            if names and not any(issubclass(seen, cls) for seen in self._seen_classes)
        ]
