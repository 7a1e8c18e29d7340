"""How the ranks of a program are laid out, as `tenscope run` notes it among the settings. Nothing here waits."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable

import torch

from tenscope.launch.when_imported import WhenImported
from tenscope.recording import ranks


class Layout:
    """What is known of the layout so far. A process group that is destroyed at the program's end has been there."""

    def __init__(self) -> None:
        self._world_size = 1
        self._backend = ""
        self._meshes: list[weakref.ref] = []
        self._noted: tuple[int, int] | None = None

    def add(self, mesh) -> None:
        """A DeviceMesh that the program has made."""
        self._meshes.append(weakref.ref(mesh))

    def forget(self) -> None:
        """What was noted was in another run."""
        self._noted = None

    def news(self) -> dict | None:
        """The layout, where more is known of it than when it was last asked for."""
        self._world_size = max(self._world_size, ranks.here()[1])
        known = (self._world_size, len(self._meshes))
        if known == self._noted:
            return None
        self._noted = known
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            self._backend = distributed.get_backend()
        meshes, coordinates = [], []
        for mesh in filter(None, (ref() for ref in self._meshes)):
            described = _named(mesh, mesh.shape)
            if described not in meshes and not _is_part(mesh):
                coordinate = mesh.get_coordinate()
                meshes.append(described)
                coordinates.append(None if coordinate is None else _named(mesh, coordinate))
        told = {"world_size": self._world_size, "backend": self._backend, "meshes": meshes}
        return told | {"coordinates": coordinates} if meshes else told


def watch_meshes(made: Callable[[object], None]) -> None:
    """Has it called with every DeviceMesh that is made, also those that are cut out of another."""
    if torch.distributed.is_available():
        WhenImported("torch.distributed.device_mesh", lambda: _wrap(made)).install()


def _wrap(made: Callable[[object], None]) -> None:
    kind = sys.modules["torch.distributed.device_mesh"].DeviceMesh
    original = kind.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made(self)

    kind.__init__ = init


def _named(mesh, numbers) -> dict[str, int] | list[int]:
    """By the names of the mesh's axes, {"dp": 2, "tp": 4}; a list where they have none."""
    names = mesh.mesh_dim_names
    return dict(zip(names, map(int, numbers), strict=True)) if names else list(map(int, numbers))


def _is_part(mesh) -> bool:
    """Cut out of another mesh, as mesh["tp"] is."""
    resources = getattr(sys.modules["torch.distributed.device_mesh"], "_mesh_resources", None)
    parts = getattr(resources, "child_to_root_mapping", None)  # torch up to 2.8
    return getattr(mesh, "_root_mesh", None) is not None or (parts is not None and mesh in parts)
