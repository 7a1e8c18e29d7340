"""How torch tensors, NumPy arrays and everything else become files."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any, ClassVar

from tenscope import files

from .registry import Serializer


class _FileSerializer(Serializer):
    extension = ""

    def load(self, filepath, trust: bool = False) -> Any:
        return files.load(filepath, trust=trust)

    def get_extension(self) -> str:
        return self.extension


class TorchSerializer(_FileSerializer):
    extension = ".pt"

    def save(self, obj: Any, filepath) -> None:
        import torch

        torch.save(obj, filepath)


class NumpySerializer(_FileSerializer):
    extension = ".npy"

    def save(self, obj: Any, filepath) -> None:
        import numpy

        with open(filepath, "wb") as file:
            numpy.save(file, obj)


class PickleSerializer(_FileSerializer):
    """Of any class. What this process has written itself it reads again without being told to trust it."""

    extension = ".pkl"
    _own: ClassVar[set[bytes]] = set()

    def save(self, obj: Any, filepath) -> None:
        content = pickle.dumps(obj)  # first, so that what cannot be pickled leaves no file
        with open(filepath, "wb") as file:
            file.write(content)
        self._own.add(hashlib.sha256(content).digest())

    def load(self, filepath, trust: bool = False) -> Any:
        if self._own and not trust:
            with open(filepath, "rb") as file:
                content = file.read()
            if hashlib.sha256(content).digest() in self._own:
                return pickle.loads(content)
        return super().load(filepath, trust)
