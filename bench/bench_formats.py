"""Files against the libraries that own them: ratios in one run, best of several, on the file system of TMPDIR."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import safetensors.torch
import tenscope
import torch

MEGABYTES = 256
REPEATS = 5


def best(function, repeats=REPEATS, prepare=lambda: None):
    times = []
    for _ in range(repeats):
        prepare()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def in_turn(ours, theirs, prepare=lambda: None):
    """Best times of both, taken in turn, so that a busy machine is busy for both."""
    pairs = [(best(ours, 1, prepare), best(theirs, 1, prepare)) for _ in range(REPEATS)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def report(what, ours, theirs, peer, goal=None):
    ratio = theirs / ours
    verdict = "" if goal is None else f"   goal {goal} x: {'met' if ratio >= goal else 'MISSED'}"
    print(f"{what:<44} {ours * 1e3:9.2f} ms   {ratio:6.2f} x {peer}{verdict}")


def bench_writing(folder, array):
    tensor = torch.from_numpy(array)
    target = folder / "out"

    def remove():
        for path in folder.glob("out.*"):
            path.unlink()

    ours, theirs = in_turn(
        lambda: tenscope.save(f"{target}.npy", array), lambda: np.save(f"{target}.npy", array), remove
    )
    report(f"write .npy, {MEGABYTES} MB", ours, theirs, "np.save", 1)
    ours, theirs = in_turn(
        lambda: tenscope.save(f"{target}.pt", tensor), lambda: torch.save(tensor, f"{target}.pt"), remove
    )
    report(f"write .pt, {MEGABYTES} MB", ours, theirs, "torch.save", 2)
    ours, theirs = in_turn(
        lambda: tenscope.save(f"{target}.safetensors", {"a": tensor}),
        lambda: safetensors.torch.save_file({"a": tensor}, f"{target}.safetensors"),
        remove,
    )
    report(f"write .safetensors, {MEGABYTES} MB", ours, theirs, "safetensors")
    many = {f"layer.{i}.weight": tensor[i * 1024 : i * 1024 + 1024].clone() for i in range(1000)}
    ours, theirs = in_turn(
        lambda: tenscope.save(f"{target}.pt", many), lambda: torch.save(many, f"{target}.pt"), remove
    )
    report("write .pt, 1000 tensors of 4 KB", ours, theirs, "torch.save")
    packed = array[: 8 << 20].round(1)
    ours, theirs = in_turn(
        lambda: tenscope.save(f"{target}.npz", {"a": packed}, compress=True),
        lambda: np.savez_compressed(f"{target}.npz", a=packed),
        remove,
    )
    report("write .npz deflated, 32 MB", ours, theirs, "np.savez_compressed")
    remove()


def bench_reading(folder, array):
    tensor = torch.from_numpy(array)
    gigabyte = torch.zeros(256 << 20)
    np.save(folder / "big.npy", gigabyte.numpy())
    torch.save({"w": gigabyte}, folder / "big.pt")
    safetensors.torch.save_file({"w": gigabyte}, folder / "big.safetensors")
    del gigabyte
    ours, theirs = in_turn(
        lambda: tenscope.load(folder / "big.npy")[12345], lambda: np.load(folder / "big.npy", mmap_mode="r")[12345]
    )
    report("first value of a 1 GB .npy", ours, theirs, "np.load(mmap_mode)")
    ours, theirs = in_turn(
        lambda: tenscope.load(folder / "big.pt")["w"][12345].item(),
        lambda: torch.load(folder / "big.pt", mmap=True)["w"][12345].item(),
    )
    report("first value of a 1 GB .pt", ours, theirs, "torch.load(mmap)")

    def first_by_safetensors():
        with safetensors.safe_open(folder / "big.safetensors", "pt") as file:
            return file.get_slice("w")[12345:12346].item()

    ours, theirs = in_turn(lambda: tenscope.load(folder / "big.safetensors")["w"][12345], first_by_safetensors)
    report("first value of a 1 GB .safetensors", ours, theirs, "safe_open")

    for name, save in (("npy", lambda p: np.save(p, array)), ("pt", lambda p: torch.save(tensor, p))):
        save(folder / f"in.{name}")
    ours, theirs = in_turn(lambda: tenscope.load(folder / "in.npy").max(), lambda: np.load(folder / "in.npy").max())
    report(f"read .npy, {MEGABYTES} MB, and its maximum", ours, theirs, "np.load")
    ours, theirs = in_turn(lambda: tenscope.load(folder / "in.pt").max(), lambda: torch.load(folder / "in.pt").max())
    report(f"read .pt, {MEGABYTES} MB, and its maximum", ours, theirs, "torch.load")
    model = {f"layer.{i}.weight": torch.ones(16) for i in range(5000)}
    torch.save(model, folder / "many.pt")
    ours, theirs = in_turn(lambda: tenscope.load(folder / "many.pt"), lambda: torch.load(folder / "many.pt"))
    report("read .pt, 5000 small tensors", ours, theirs, "torch.load")
    np.savez_compressed(folder / "in.npz", a=array[: 8 << 20].round(1))
    ours, theirs = in_turn(
        lambda: tenscope.load(folder / "in.npz")["a"].max(), lambda: np.load(folder / "in.npz")["a"].max()
    )
    report("read .npz deflated, 32 MB", ours, theirs, "np.load")


def main():
    array = np.random.default_rng(0).standard_normal(MEGABYTES << 18, dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="tenscope_bench_") as name:
        folder = Path(name)
        machine = f"{os.uname().machine}, {os.cpu_count()} CPUs"
        print(f"# formats: {machine}, numpy {np.__version__}, torch {torch.__version__}")
        bench_writing(folder, array)
        bench_reading(folder, array)


if __name__ == "__main__":
    main()
