"""Gathered values into an HDF5 file."""

from __future__ import annotations

import numpy as np

from tenscope.probes.hdf5 import Hdf5Saver


class H5PYSaverCallback(Hdf5Saver):
    """A post_gather or post_trace callback: appends what it gets to the file, and empties the lists."""

    def __init__(
        self,
        dataset_file,
        iteration_dtype=np.int64,
        float_dtype=np.float32,
        int_dtype=np.int32,
        compression=None,
        compression_opts=None,
        shuffle=False,
        existing_ok=True,
    ):
        super().__init__(
            dataset_file,
            iteration_dtype=iteration_dtype,
            float_dtype=float_dtype,
            int_dtype=int_dtype,
            compression=compression,
            compression_opts=compression_opts,
            shuffle=shuffle,
            existing_ok=existing_ok,
        )

    @property
    def h5_file(self):
        """The open file; None on ranks that write nothing."""
        return self.file
