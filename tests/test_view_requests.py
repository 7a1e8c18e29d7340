"""Whatever is asked of `tenscope view`, it answers or says why not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from urllib.parse import quote

import pytest
import tenscope
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from viewed_runs import record_runs
from viewer_client import Viewer, viewing


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return record_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def bad(runs):
    """The good run against one with a mistake in blocks.1.mlp."""
    with viewing(runs / "good", runs / "bad") as viewer:
        yield SimpleNamespace(viewer=viewer, a=tenscope.open(runs / "good"), b=tenscope.open(runs / "bad"))


@pytest.fixture(scope="module")
def list_viewer(runs):
    with Viewer(runs) as viewer:
        yield viewer


TARGETS = [
    "runs", "session", "answer", "timeline", "modules", "names", "events", "event", "series", "tile", "elements",
    "element", "find", "tolerance", "profile", "histogram", "histograms", "variables", "changes", "source", "calls",
    "live", "", "../etc/passwd", "tile/", "TILE",
]  # fmt: skip
WORDS = [
    "", "0", "1", "2", "7", "-1", "1e3", "nan", "inf", "-inf", "x", "a", "b", "c", "diff", "rel", "ulp", "0:2", "2:0",
    ":", "0,0", ":,:", "...", "::-1", "::0", "0,:,0", "1,2,3,4,5,6,7,8,9", "9" * 30, str(2**63 - 1), str(-(2**63)),
    str(2**63),
    str(2**32), str(2**33 + 5), "worst", "largest", "bad", "differs", "mismatch", "first.output", "l2", "error",
    "\0", "%", "ä", "\u2028", ",", ",,",
    "0,", "0,1,2", "1:2:3", "-5:", ":-1", "0x10", " 1", "1 ", "+1", "True", "../x", "good", "😀",
]  # fmt: skip
PARAMETERS = [
    "side", "event", "of", "slice", "t", "fold", "rows", "cols", "h", "w", "scale", "index", "what", "from", "back",
    "rtol", "atol", "count", "axis", "steps", "name", "names", "step", "rank", "call", "offset", "stat", "points",
    "scope", "revision", "run", "against", "nonsense",
]  # fmt: skip
requests = st.tuples(
    st.sampled_from(TARGETS),
    st.dictionaries(st.sampled_from(PARAMETERS), st.sampled_from(WORDS), max_size=6),
    st.one_of(st.none(), st.integers(0, 200)),
)


def check_answered(viewer, target: str) -> None:
    status, body = viewer.ask(target)
    assert status in (200, 400, 404), (target, status, body[:300])
    if status != 200:
        sentence = json.loads(body)["error"]
        assert sentence and "std::" not in sentence and "vector" not in sentence, (target, sentence)
    elif body[:4] != b"TST1":
        json.loads(body)


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests)
def test_no_request_is_too_odd(bad, request):
    what, parameters, event = request
    if event is not None:
        parameters = parameters | {"event": str(event)}
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    check_answered(bad.viewer, f"/api/{what}?{query}")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TARGETS), st.text("abxyz01=&%?#/+:,.-;\"'<>[]{}", max_size=40))
def test_no_query_is_too_odd(bad, what, query):
    check_answered(bad.viewer, f"/api/{what}?{query.replace('#', '%23')}")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests, st.sampled_from(["good", "bad", "../x", ""]), st.sampled_from(["good", "same", "x", None]))
def test_no_request_of_a_list_is_too_odd(list_viewer, request, run, against):
    what, parameters, event = request
    chosen = {"run": run} | ({"against": against} if against is not None else {})
    parameters = parameters | chosen | ({"event": str(event)} if event is not None else {})
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    check_answered(list_viewer, f"/api/{what}?{query}")
