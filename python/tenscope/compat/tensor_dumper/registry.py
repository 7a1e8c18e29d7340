"""Which class saves, loads and compares which type of object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Serializer(ABC):
    @abstractmethod
    def save(self, obj: Any, filepath) -> None: ...

    @abstractmethod
    def load(self, filepath) -> Any: ...

    @abstractmethod
    def get_extension(self) -> str:
        """The suffix of its files, with the dot."""


class Comparator(ABC):
    @abstractmethod
    def compare(self, a: Any, b: Any, **kwargs) -> bool:
        """Called with `atol` and `rtol`."""


def _type_names(obj: Any) -> list[str]:
    """ "module.Class" of the object's class and its bases, nearest first."""
    return [f"{cls.__module__}.{cls.__qualname__}" for cls in type(obj).__mro__]


def _normalised(extension: str) -> str:
    extension = extension.lower()
    return extension if extension.startswith(".") else f".{extension}"


class Registry:
    def __init__(self) -> None:
        self._serializers: dict[str, Serializer] = {}
        self._by_extension: dict[str, Serializer] = {}
        self._comparators: dict[str, Comparator] = {}
        self.default_serializer: Serializer | None = None
        self.default_comparator: Comparator | None = None

    def register_serializer(self, type_name: str, serializer: Serializer) -> None:
        self._serializers[type_name] = serializer
        self._by_extension.setdefault(_normalised(serializer.get_extension()), serializer)

    def register_serializer_for_extension(self, extension: str, serializer: Serializer) -> None:
        self._by_extension[_normalised(extension)] = serializer

    def register_comparator(self, type_name: str, comparator: Comparator) -> None:
        self._comparators[type_name] = comparator

    def get_serializer(self, obj: Any) -> Serializer | None:
        return next((self._serializers[n] for n in _type_names(obj) if n in self._serializers), self.default_serializer)

    def get_serializer_by_extension(self, extension: str) -> Serializer | None:
        return self._by_extension.get(_normalised(extension))

    def get_comparator(self, a: Any, b: Any) -> Comparator | None:
        return next((self._comparators[n] for n in _type_names(a) if n in self._comparators), self.default_comparator)
