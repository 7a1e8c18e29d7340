"""Statistics of a hundred million elements against numpy in float64: accumulation loses nothing."""

import math
import sys

import numpy as np
import pytest
import tenscope

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the kernels are the same on every Python")

COUNT = 10**8
CHUNK = 10**6


def by_numpy(array):
    """mean, std and l2: numpy's float64 sums of a million elements each, added up exactly."""

    def total(of):
        chunks = (array[i : i + CHUNK].astype(np.float64) for i in range(0, len(array), CHUNK))
        return math.fsum(of(chunk).sum() for chunk in chunks)

    mean = total(lambda x: x) / len(array)
    return mean, math.sqrt(total(lambda x: (x - mean) ** 2) / len(array)), math.sqrt(total(np.square))


@pytest.mark.parametrize(
    ("mean", "std"),
    [(0, 1), (16384, 0.05)],
    ids=["around zero", "a large mean and a small deviation"],
)
def test_a_hundred_million_floats(tmp_path, mean, std):
    array = np.random.default_rng(0).standard_normal(COUNT, dtype=np.float32)
    array *= np.float32(std)
    array += np.float32(mean)
    with tenscope.Run(tmp_path, metadata=False) as run:
        run.record("x", array, values="stats")
    (event,) = tenscope.open(run.path).events("x")
    stats = event.stats
    expected_mean, expected_std, expected_l2 = by_numpy(array)
    errors = {
        "mean": abs(stats.mean - expected_mean) / expected_std,  # about zero the mean itself is no measure
        "std": abs(stats.std / expected_std - 1),
        "l2": abs(stats.l2 / expected_l2 - 1),
    }
    print({name: f"{error:.1e}" for name, error in errors.items()})
    assert stats.min == array.min() and stats.max == array.max()
    assert max(errors.values()) < 1e-12, errors
