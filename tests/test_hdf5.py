"""tenscope export RUN out.h5, with h5py as judge."""

import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import tenscope

h5py = pytest.importorskip("h5py")
torch = pytest.importorskip("torch")

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    *(torch.bool, torch.complex64, torch.complex128),
]


def export(run, out, *options):
    program = Path(sysconfig.get_path("scripts")) / "tenscope"
    done = subprocess.run([program, "export", run, out, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return h5py.File(out)


def make_run(folder, record):
    with tenscope.Run(str(folder)) as run:
        record(run)
        return run.path


def test_a_row_per_step_with_its_iteration_and_rank(tmp_path):
    def record(run):
        for step in range(5):
            run.step(step * 10)
            run.record("blocks.0.out", torch.full((2, 3), float(step)))
            run.record("loss", step / 2)
            run.record("count", step)
            run.record("note", f"schön {step}")

    path = make_run(tmp_path / "runs", record)
    with export(path, tmp_path / "out.h5") as file:
        out = file["blocks.0.out"]
        assert out.shape == (5, 2, 3)
        assert out.maxshape[0] is None
        assert out.dtype == np.float32
        assert out[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
        assert file["blocks.0.out_iterations"][:].tolist() == [0, 10, 20, 30, 40]
        assert file["blocks.0.out_ranks"][:].tolist() == [0] * 5
        assert file["loss"][:].tolist() == [0, 0.5, 1, 1.5, 2]
        assert file["loss"].dtype == np.float64
        assert file["count"][:].tolist() == [0, 1, 2, 3, 4]
        assert file["note"].asstr()[:].tolist() == [f"schön {step}" for step in range(5)]
        assert "blocks.0.out_shapes" not in file


@pytest.mark.parametrize("compressed", [False, True])
def test_every_dtype(tmp_path, compressed):
    values = {str(d)[6:]: torch.tensor([0, 1, 2, 3]).to(d) for d in DTYPES}

    def record(run):
        for name, value in values.items():
            run.record(name, value)

    path = make_run(tmp_path / "runs", record)
    with export(path, tmp_path / "out.h5", *(["--gzip", "4", "--shuffle"] if compressed else [])) as file:
        for name, value in values.items():
            narrow = value.dtype == torch.bfloat16 or name.startswith("float8")
            want = (value.float() if narrow else value).numpy()
            assert file[name].dtype == want.dtype
            assert np.array_equal(file[name][0], want)
            assert (file[name].compression == "gzip") == compressed


def test_other_sizes_are_padded_and_other_kinds_go_beside(tmp_path):
    def record(run):
        run.record("x", torch.ones(2, 3))
        run.record("x", torch.full((4, 1), 2.0))
        run.record("x", torch.ones(5))
        run.record("x", torch.ones(2, 3, dtype=torch.int64))
        run.record("a/b", torch.ones(0, 2))

    path = make_run(tmp_path / "runs", record)
    with export(path, tmp_path / "out.h5") as file:
        assert file["x"].shape == (2, 4, 3)
        assert file["x"][1].tolist() == [[2, 0, 0]] * 4
        assert file["x_shapes"][:].tolist() == [[2, 3], [4, 1]]
        assert file["x_1d"].shape == (1, 5)
        assert file["x_2d"].dtype == np.int64
        assert file["a:b"].shape == (1, 0, 2)


def test_names_that_would_collide_and_values_without_bytes(tmp_path):
    def record(run):
        for i in range(2):
            run.step(i)
            for name in ("x", "x_iterations", "x_ranks", "x/y", ".", "", "..", "weird name."):
                run.record(name, i)
            run.record("only", torch.ones(3), values="stats")
            run.record("scalar", torch.tensor(float(i)))
            run.record("huge", 2**70 + i)
            run.record("text", "" if i else "a\nb")
            run.record("flag", True)
            run.record("turned", torch.arange(6.0).reshape(2, 3).t())

    path = make_run(tmp_path / "runs", record)
    with export(path, tmp_path / "out.h5", "--gzip", "9", "--shuffle") as file:
        for name in ("x", "x_iterations_", "x_ranks_", "x:y", "_.", "_", "_..", "weird name.", "scalar"):
            assert file[name][:].tolist() == [0, 1], name
        assert file["x_iterations"][:].tolist() == [0, 1] and file["x_ranks"][:].tolist() == [0, 0]
        assert "only" not in file
        assert file["huge"].asstr()[:].tolist() == [str(2**70), str(2**70 + 1)]
        assert file["text"].asstr()[:].tolist() == ["a\nb", ""]
        assert file["turned"][0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_live_saving_goes_on_in_a_file_that_exists(tmp_path):
    model = torch.nn.Linear(2, 2)
    for start in (0, 2):
        saver = tenscope.Hdf5Saver(tmp_path / "live.h5", compression="gzip", shuffle=True, append=True)
        with saver, tenscope.gather(model, ["forward", "forward.input"], hdf5=saver, gather_every=2):
            for i in range(start, start + 2):
                model(torch.full((1 + i % 2, 2), float(i)))
    with h5py.File(tmp_path / "live.h5") as file:
        assert set(file) == {f"forward{part}{end}" for part in ("", ".input") for end in ("", "_iterations", "_ranks")}
        values = file["forward.input"]
        assert values.shape == (4, 2, 2) and values.compression == "gzip" and values.shuffle
        assert values[:, 0, 0].tolist() == [0, 1, 2, 3]
        assert file["forward_iterations"][:].tolist() == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="exists"):
        tenscope.Hdf5Saver(tmp_path / "live.h5", existing_ok=False)
