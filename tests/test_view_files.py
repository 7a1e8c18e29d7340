"""`tenscope view` of files: it says what `tenscope diff` says of them, and its places lead to their tensors."""

import hand_written_run
import numpy as np
import pytest
from viewer_client import viewing


def first_line(*words):
    return hand_written_run.tenscope("diff", *words, check=None).stdout.splitlines()[0]


@pytest.mark.parametrize("is_changed", [False, True])
def test_two_checkpoints_with_other_names(tmp_path, is_changed):
    numpy = pytest.importorskip("safetensors.numpy")
    random = np.random.default_rng(0)
    names = [f"model.layers.{i}.{part}.weight" for i in range(4) for part in ("up", "down")]
    a = {name: random.normal(size=(64, 48)).astype(np.float32) for name in names}
    b = {name.replace("model.layers", "blk"): value.copy() for name, value in a.items()}
    if is_changed:
        b["blk.2.up.weight"][:8] *= 1.3
    files = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    numpy.save_file(a, files[0])
    numpy.save_file(b, files[1])
    with viewing(*files) as viewer:
        answer = viewer.answer()
        assert answer["headline"] == first_line(*files)
        assert answer["verdict"] == ("differs" if is_changed else "equal")
        listed = viewer.json("names")
        event = viewer.json("event", event=listed["first"][listed["name"].index("model.layers.2.up.weight")])
        partner = viewer.json("event", event=event["partner"], side="b")
        assert partner["name"] == "blk.2.up.weight"
        if is_changed:
            (place,) = answer["places"]
            assert (place["event_a"], place["event_b"]) == (event["id"], partner["id"])
            assert viewer.json("find", event=event["id"], what="differs")["count"] == 8 * 48


def test_two_folders(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for folder, factor in (("before", 1), ("after", 2)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "same.npy", values)
        np.savez(tmp_path / folder / "other.npz", w=values * factor)
    with viewing(tmp_path / "before", tmp_path / "after") as viewer:
        answer = viewer.answer()
        (place,) = answer["places"]
        assert place["name"] == "other.npz: w" and answer["headline"] == "1 of 2 values differs"
        assert viewer.json("element", event=place["event_a"], index="2,3")["b"]["text"] == "22.0"
