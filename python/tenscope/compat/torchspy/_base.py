"""What the saver and the tracer share: a folder, a switch, and the paths of registered modules."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from torch import nn

from tenscope.probes.modules import plain_paths


class ModulePaths(MutableMapping):
    """id(module) → path. An entry goes with its module, so that a reused id never has an old path."""

    def __init__(self):
        self._paths: dict[int, str] = {}
        self._alive: dict[int, weakref.ref] = {}

    def add(self, module: nn.Module, path: str) -> None:
        key = id(module)
        self._paths[key] = path
        self._alive[key] = weakref.ref(module, lambda _: self._drop(key))

    def _drop(self, key: int) -> None:
        self._paths.pop(key, None)
        self._alive.pop(key, None)

    def __getitem__(self, key: int) -> str:
        return self._paths[key]

    def __setitem__(self, key: int, path: str) -> None:
        self._paths[key] = path

    def __delitem__(self, key: int) -> None:
        del self._paths[key]
        self._alive.pop(key, None)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._paths))

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return repr(self._paths)


class BaseDebugger:
    def __init__(self, output_dir, enabled: bool = True):
        self.output_dir = Path(output_dir).absolute()
        self.output_dir.mkdir(parents=True, exist_ok=True)
        self.enabled = enabled
        self.module_paths: MutableMapping[int, str] = ModulePaths()

    def get_module_path(self, module: nn.Module) -> str:
        return self.module_paths.get(id(module), "unknown")

    def _register(self, model, target_classes=(nn.Module,), target_names=None, exclude_names=None):
        """Notes the paths of the modules that are wanted and returns those modules, each once."""
        classes = tuple(target_classes) if isinstance(target_classes, (list, set)) else target_classes
        found: dict[int, nn.Module] = {}
        for path, module in plain_paths(model):
            path = path or "root"
            if not isinstance(module, classes):
                continue
            if target_names is not None and not any(part in path for part in target_names):
                continue
            if any(part in path for part in exclude_names or ()):
                continue
            if id(module) not in found:
                found[id(module)] = module
                self.module_paths.add(module, path)
        return list(found.values())
