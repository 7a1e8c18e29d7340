"""bench/upgrades/cases.json: every case can be run and judged (make upgrades runs and judges them)."""

import json
from pathlib import Path

BENCH = Path(__file__).parent.parent / "bench" / "upgrades"
CASES = json.loads((BENCH / "cases.json").read_text())


def both(value):
    return value if isinstance(value, list) else [value, value]


def test_ids_are_unique():
    ids = [case["id"] for case in CASES]
    assert len(ids) == len(set(ids)) >= 20


def test_each_has_a_script_and_an_answer():
    for case in CASES:
        assert all((BENCH / "cases" / f"{script}.py").exists() for script in both(case["script"])), case["id"]
        assert len(case.get("args", [[], []])) == 2 and case["why"], case["id"]
        if case["expect"] == "bug":
            assert case["modules"] and all(isinstance(value, list) for value in case.get("want", {}).values())
        else:
            assert case["expect"] == "harmless" and not {"modules", "want"} & case.keys(), case["id"]


def test_two_sides_are_not_the_same():
    for case in CASES:
        sides = [both(case["script"]), case.get("args", [[], []]), both(case.get("env"))]
        assert any(one != other for one, other in sides), case["id"]


def test_a_third_is_harmless():
    harmless = sum(case["expect"] == "harmless" for case in CASES)
    assert 0.3 <= harmless / len(CASES) <= 0.45


def test_requirements_are_pinned_and_used():
    used = {name for case in CASES for name in both(case.get("env")) if name}
    files = {path.stem: path.read_text().split() for path in (BENCH / "requirements").glob("*.txt")}
    assert used == files.keys()
    assert all("==" in line for lines in files.values() for line in lines)


def test_scripts_are_used():
    used = {script for case in CASES for script in both(case["script"])}
    assert used | {"common"} == {path.stem for path in (BENCH / "cases").glob("*.py")}
