"""Series of values into an HDF5 file while they come, through h5py: resizable datasets that h5py opens anywhere."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from tenscope.probes.gather import rank


class DatasetPair(tuple):
    """The datasets of values and of iterations; what is asked of it besides is asked of the values."""

    __slots__ = ()

    def __getattr__(self, name):
        return getattr(self[0], name)

    def __repr__(self) -> str:
        return repr(self[0])


class Hdf5Saver:
    """Appends series: dataset `<name>`, and beside it `<name>_iterations` and `<name>_ranks`. Writes on rank 0 only.

    Floating values become float_dtype, integers and bools int_dtype (int64 where they do not fit), complex ones stay,
    text is text. A smaller value than the first is padded with zeros at the end of each axis. As a callback after a
    gathering it appends what it gets and empties the lists. A file that exists is replaced; with `append` its series
    go on.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        iteration_dtype=np.int64,
        float_dtype=np.float32,
        int_dtype=np.int32,
        compression=None,
        compression_opts=None,
        shuffle: bool = False,
        existing_ok: bool = True,
        append: bool = False,
    ):
        self.datasets: dict[str, DatasetPair] = {}
        self._ranks: dict[str, object] = {}
        self._iteration_dtype = np.dtype(iteration_dtype)
        self._float_dtype = np.dtype(float_dtype)
        self._int_dtype = np.dtype(int_dtype)
        self._storage = {"compression": compression, "compression_opts": compression_opts, "shuffle": shuffle}
        self.file = None
        if rank() != 0:
            return
        import h5py

        path = Path(path).absolute()
        if path.exists() and not existing_ok:
            raise ValueError(f"the file exists: {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = h5py.File(path, "a" if append else "w")
        self.file.visititems(self._take_up)

    def _take_up(self, name: str, found) -> None:
        """A series that the file has already."""
        beside = [self.file.get(f"{name}_{column}") for column in ("iterations", "ranks")]
        if None not in beside:
            self.datasets[name] = DatasetPair((found, beside[0]))
            self._ranks[name] = beside[1]

    def append(self, name: str, values: list, iterations: list, ranks: list | None = None) -> None:
        if self.file is None or not values:
            return
        rows = [self._as_array(value) for value in values]
        if len({row.ndim for row in rows}) > 1:
            raise ValueError(f"values of different numbers of dimensions in one series: {name}")
        kind = _common_kind(rows)
        if kind == "text":
            rows = [np.array(_text(value), dtype=object) for value in values]
        shape = tuple(max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True))
        if name not in self.datasets:
            self._create(name, shape, self._dtype(kind, rows))
        content, iteration_set = self.datasets[name]
        if len(shape) != content.ndim - 1 or any(a > b for a, b in zip(shape, content.shape[1:], strict=True)):
            raise ValueError(f"a value of shape {shape} does not fit the series {name} of {content.shape[1:]}")
        if kind == "int" and content.dtype != np.int64 and not _fits(rows, content.dtype):
            content = self._widen(name)
        start = content.shape[0]
        content.resize(start + len(rows), axis=0)
        for at, row in enumerate(rows, start):
            content[(at, *(slice(0, size) for size in row.shape))] = row
        _extend(iteration_set, iterations)
        _extend(self._ranks[name], ranks if ranks is not None else [0] * len(iterations))
        self.file.flush()

    def __call__(self, name: str, values: list, iterations: list, ranks: list | None = None) -> None:
        if self.file is None:
            return
        self.append(name, values, iterations, ranks)
        for entries in (values, iterations, ranks):
            if entries is not None:
                entries.clear()

    def __enter__(self) -> Hdf5Saver:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        if self.file is not None and self.file.id.valid:
            self.file.flush()
            self.file.close()

    def _as_array(self, value) -> np.ndarray:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu()
            if value.is_floating_point() and value.dtype not in (torch.float64, torch.float32, torch.float16):
                value = value.float()
            return value.resolve_conj().resolve_neg().numpy()
        if isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)):
            return np.asarray(value)
        return np.asarray(_text(value), dtype=object)

    def _dtype(self, kind: str, rows: list[np.ndarray]):
        if kind == "text":
            import h5py

            return h5py.string_dtype()
        if kind == "complex":
            return np.result_type(*rows)
        if kind == "float":
            return self._float_dtype
        return self._int_dtype if _fits(rows, self._int_dtype) else np.dtype(np.int64)

    def _create(self, name: str, shape: tuple[int, ...], dtype) -> None:
        content = self.file.create_dataset(
            name, shape=(0, *shape), maxshape=(None, *shape), dtype=dtype, chunks=_chunks(shape, dtype), **self._storage
        )
        iterations = self._create_flat(f"{name}_iterations", self._iteration_dtype)
        self._ranks[name] = self._create_flat(f"{name}_ranks", np.dtype(np.int32))
        self.datasets[name] = DatasetPair((content, iterations))

    def _create_flat(self, name: str, dtype):
        return self.file.create_dataset(
            name, shape=(0,), maxshape=(None,), dtype=dtype, chunks=(1024,), **self._storage
        )

    def _widen(self, name: str):
        old, iterations = self.datasets[name]
        content, shape = old[...], old.shape[1:]
        del self.file[name]
        new = self.file.create_dataset(
            name,
            data=content.astype(np.int64),
            maxshape=(None, *shape),
            chunks=_chunks(shape, np.dtype(np.int64)),
            **self._storage,
        )
        self.datasets[name] = DatasetPair((new, iterations))
        return new


def _common_kind(rows: list[np.ndarray]) -> str:
    kinds = {row.dtype.kind for row in rows}
    if kinds <= set("biu"):
        return "int"
    if kinds <= set("biuf"):
        return "float"
    return "complex" if kinds <= set("biufc") else "text"


def _fits(rows: list[np.ndarray], dtype: np.dtype) -> bool:
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    return limits is None or all(
        row.size == 0 or (int(row.min()) >= limits.min and int(row.max()) <= limits.max) for row in rows
    )


def _text(value) -> str:
    return value if isinstance(value, str) else repr(value)


def _chunks(shape: tuple[int, ...], dtype) -> tuple[int, ...]:
    """One value a chunk, or several small ones; no chunk may be 4 GB or have an axis of 0."""
    row = tuple(max(1, size) for size in shape)
    while np.prod(row) * np.dtype(dtype).itemsize > 1 << 28:
        row = tuple(max(1, size // 2) for size in row)
    return (max(1, min(1024, 16384 // int(np.prod(row)))), *row)


def _extend(dataset, values: list) -> None:
    start = dataset.shape[0]
    dataset.resize(start + len(values), axis=0)
    if values:
        dataset[start:] = np.asarray(values)
