"""TensorDumper: flat files in a timestamped folder that is at the same time a tenscope run."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path
from typing import Any

from tenscope.errors import UnsupportedError
from tenscope.recording.registry import entry_of
from tenscope.recording.run import Run

from .comparators import DefaultComparator, NumpyComparator, TorchComparator
from .launch import shared_folder
from .metadata import SHANGHAI, DumperMetadata
from .registry import Registry
from .serializers import NumpySerializer, PickleSerializer, TorchSerializer


def _rank_and_world() -> tuple[int, int]:
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        world = int(os.environ["WORLD_SIZE"])
        return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", ""))), world
    except (KeyError, ValueError):
        return 0, 1


def _process_group():
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed
    return None


def _make_folder(base: Path) -> Path:
    """A new folder named by Shanghai's time; by the next free second where that one is taken."""
    stamp = datetime.datetime.now(SHANGHAI)
    while True:
        folder = base / stamp.strftime("%Y%m%d_%H%M%S")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            stamp += datetime.timedelta(seconds=1)


class TensorDumper:
    """One dumper: a folder, a running number, a registry. Instances are independent."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.register_serializer("torch.Tensor", TorchSerializer())
        self.registry.register_serializer("numpy.ndarray", NumpySerializer())
        self.registry.default_serializer = PickleSerializer()
        self.registry.register_serializer_for_extension(".pkl", self.registry.default_serializer)
        self.registry.register_comparator("torch.Tensor", TorchComparator())
        self.registry.register_comparator("numpy.ndarray", NumpyComparator())
        self.registry.default_comparator = DefaultComparator()
        self.enabled = True
        self.folder: Path | None = None
        self.rank, self.world_size = 0, 1
        self._metadata: DumperMetadata | None = None
        self._index = None
        self._count = 0

    def init(self, folder_name: str | os.PathLike) -> None:
        base = Path(folder_name).absolute()
        self.rank, self.world_size = _rank_and_world()
        group = _process_group() if self.world_size > 1 else None
        if group is not None:
            shared = [_make_folder(base).name if self.rank == 0 else None]
            group.broadcast_object_list(shared, src=0)
            self.folder = base / shared[0]
        elif self.world_size > 1:
            self.folder = shared_folder(base, self.rank, self.world_size, _make_folder)
        else:
            self.folder = _make_folder(base)
        self._count = 0
        self._metadata = None
        if self.rank == 0:
            self._metadata = DumperMetadata(self.folder)
            self._metadata.write_all()
            print(f"tensor_dumper: writing to {self.folder}")
        if group is not None:
            group.barrier()
        self._open_index()

    def dump(self, obj: Any, name: str | None = None, update_metadata: bool = True) -> None:
        if not self.enabled:
            return
        if self.folder is None:
            raise RuntimeError("tensor_dumper: dump() before init(): call tensor_dumper.init(folder) first")
        if obj is None:
            return
        if update_metadata:
            self.update_metadata()
        serializer = self.registry.get_serializer(obj)
        if serializer is self.registry.default_serializer and entry_of(obj) is not None:
            obj = entry_of(obj).to_value(obj)
            serializer = self.registry.get_serializer(obj)
        number, self._count = self._count, self._count + 1
        path = self._free_path(name if name is not None else f"dump_{number:04d}", serializer.get_extension())
        path.parent.mkdir(parents=True, exist_ok=True)
        serializer.save(obj, path)
        self._add_to_index(name if name is not None else f"dump_{number:04d}", path, obj)

    def compare(self, a: Any, b: Any, atol: float = 1e-8, rtol: float = 1e-5, trust: bool = False) -> bool:
        a, b = self._loaded(a, trust), self._loaded(b, trust)
        return bool(self.registry.get_comparator(a, b).compare(a, b, atol=atol, rtol=rtol))

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        self.enabled = False

    def update_metadata(self) -> None:
        if self._metadata is not None:
            self._metadata.update()

    def _free_path(self, name: str, extension: str) -> Path:
        rank = f"_rank{self.rank}" if self.world_size > 1 else ""
        path = self.folder / f"{name}{rank}{extension}"
        again = 0
        while path.exists():
            again += 1
            path = self.folder / f"{name}_{again}{rank}{extension}"
        return path

    def _loaded(self, value: Any, trust: bool) -> Any:
        if not isinstance(value, (str, os.PathLike)):
            return value
        path = Path(value)
        serializer = self.registry.get_serializer_by_extension(path.suffix)
        if serializer is None:
            raise ValueError(f"cannot compare a file of unknown type {path.suffix!r}: {path}")
        if not path.exists():
            raise FileNotFoundError(f"no such file: {path}")
        if trust and hasattr(serializer, "extension"):
            return serializer.load(path, trust=True)
        try:
            return serializer.load(path)
        except UnsupportedError as error:
            if "trust=True" not in str(error):
                raise
            reason = str(error).partition(" (load it with")[0]
            advice = "if the file is your own, say tensor_dumper.compare(a, b, trust=True)"
            raise UnsupportedError(f"{reason}: {advice}") from None

    def _open_index(self) -> None:
        """The folder as a tenscope run: a journal beside the files, which stay the only copy of the bytes."""
        if self._index is not None:
            self._index.close()
        place = {"name": self.folder.name, "rank": self.rank, "world_size": self.world_size, "join": True}
        self._index = Run(self.folder.parent, **place, metadata=False)

    def _add_to_index(self, name: str, path: Path, obj: Any) -> None:
        is_tensor = path.suffix in (".pt", ".npy") and type(obj).__module__.partition(".")[0] in ("torch", "numpy")
        file = str(path.relative_to(self.folder)) if is_tensor else ""
        self._index.record(name, obj, values="stats", file=file, meta={"file": path.name})
