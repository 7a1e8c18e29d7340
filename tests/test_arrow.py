"""A recording as a table: through Arrow's C stream to pyarrow, Polars, DuckDB and pandas, and as files.

The judge of every cell is what run.find() gives, event by event.
"""

import csv
import gc
import io
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

WORDS = ("io", "scope", "phase", "root", "cls", "site", "task")
STATISTICS = ("min", "max", "mean", "std", "l2", "abs_max")
COUNTS = ("nan", "pos_inf", "neg_inf", "zero", "subnormal")


def or_none(number):
    return None if math.isnan(number) else float(number)


def cell_of_number(event):
    """(type, value, text) of an event, from what Python reads."""
    if event.is_tensor:
        value = None
        if event.shape == () and not event.dtype.startswith("complex"):
            stats = event.stats
            infinite = math.inf if stats.pos_inf else -math.inf
            value = math.nan if stats.nan else infinite if stats.pos_inf + stats.neg_inf else stats.min
        is_long = isinstance(value, int) and abs(value) > 2**53
        return "tensor", None if value is None else float(value), str(value) if is_long else None
    if not event._record.has_value:
        return None, None, None
    value = event.value
    if value is None or isinstance(value, str):
        return ("none", None, None) if value is None else ("text", None, value)
    if isinstance(value, bool):
        return "bool", float(value), None
    if isinstance(value, int):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        return "int", number, str(value) if abs(value) > 2**53 else None
    return "float", value, None


def row_of(event):
    kind, value, text = cell_of_number(event)
    row = {
        "rank": event.rank, "writer": event.writer, "seq": event.seq, "time": event.time_ns, "step": event.step,
        "call": event.call, "kind": event.kind, "name": event.name, "type": kind, "value": value, "text": text,
        "dtype": event.dtype, "shape": None if event.shape is None else list(event.shape), "device": event.device,
        "stored": event.stored if event.is_tensor else None, "fingerprint": event.fingerprint,
        "thread": event.thread, "meta": event._record.meta or None,
    }  # fmt: skip
    row |= {name: getattr(event, name) or None for name in WORDS}
    stats = event.stats
    row["count"] = None if stats is None else stats.count
    row |= {name: None if stats is None else or_none(getattr(stats, name)) for name in STATISTICS}
    row |= {name: None if stats is None else getattr(stats, name) for name in COUNTS}
    return row


def rows_of(table):
    """Rows as dicts; times as nanoseconds."""
    table = table.set_column(table.column_names.index("time"), "time", table["time"].cast(pa.int64()))
    return table.to_pylist()


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def check(table, run):
    table.validate(full=True)
    events = run.find()
    rows = rows_of(table)
    assert len(rows) == len(events)
    for row, event in zip(rows, events, strict=True):
        expected = row_of(event)
        assert row.keys() == expected.keys()
        wrong = {name: (row[name], expected[name]) for name in row if not same(row[name], expected[name])}
        assert not wrong


def record_much(folder, **options):
    """A run with every kind of event and value."""
    with tenscope.Run(folder, **options) as run:
        for step in range(3):
            run.record("loss", 1 / (step + 1), io="loss")
            run.record(
                "x", np.arange(6, dtype=np.float32).reshape(2, 3) * step, scope="blocks.0", cls="Block", phase="forward"
            )
            run.record("bad", np.array([np.nan, np.inf, -np.inf, 1.5, 0, 1e-310]))
            run.record("all_bad", np.array([np.nan, np.nan], dtype=np.float16))
            run.record("only_statistics", np.ones(3), values="stats")
            for name, value in ODD.items():
                run.record(name, value)
            run.step()
    return tenscope.open(run.path)


ODD = {
    "scalar": np.float32(0.1),
    "scalar_nan": np.array(np.nan),
    "scalar_inf": np.array(-np.inf),
    "scalar_bool": np.array(True),
    "scalar_complex": np.array(1 + 2j),
    "long": np.array(2**53 + 1),
    "longest": np.array(2**64 - 1, dtype=np.uint64),
    "nothing": np.zeros((0, 4)),
    "none": None,
    "truth": False,
    "int": -7,
    "int_long": 2**53 + 1,
    "int_big": -(10**40),
    "int_huge": 10**400,
    "nan": math.nan,
    "inf": math.inf,
    "text": 'a "text",\nwith lines; é 漢 🙂',
    "text_empty": "",
    "empty_dict": {},
    "empty_list": [],
    "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
    "x" * 5000: 1,
}


@pytest.fixture(scope="module")
def much(tmp_path_factory):
    return record_much(tmp_path_factory.mktemp("much"))


def test_every_cell_is_what_python_reads(much):
    check(pa.table(much), much)


def test_types(much):
    table = pa.table(much)
    assert pa.schema(much) == table.schema
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    assert types["time"] == pa.timestamp("ns", "UTC") and types["rank"] == pa.int32() and types["step"] == pa.int64()
    assert types["name"] == types["meta"] == pa.string() and types["stored"] == pa.bool_()
    assert types["shape"].value_type == pa.int64() and types["value"] == types["l2"] == pa.float64()
    assert not table.schema.field("name").nullable and table.schema.field("value").nullable


def test_other_layouts_of_text_may_be_asked_for(much):
    plain = pa.table(much)
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        schema = pa.schema([f.with_type(kind) if f.type == pa.string() else f for f in plain.schema])
        table = pa.RecordBatchReader.from_stream(much, schema=schema).read_all()
        assert table.schema.field("name").type == kind
        check(table, much)
    fewer = pa.schema(list(plain.schema)[:-1])
    with pytest.raises(tenscope.UsageError, match="36 columns, and events have 37"):
        much.__arrow_c_stream__(fewer.__arrow_c_schema__())
    other = plain.schema.set(0, pa.field("ranks", pa.int32()))
    with pytest.raises(ValueError, match="column 0 is 'ranks' instead of 'rank'"):
        much.__arrow_c_stream__(other.__arrow_c_schema__())
    with pytest.raises(ValueError):
        much.__arrow_c_stream__(much.__arrow_c_stream__())  # a capsule of something else


def test_polars(much):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(much)
    assert frame.height == len(much) and frame["shape"].dtype == pl.List(pl.Int64)
    assert frame.filter(pl.col("name") == "loss")["value"].to_list() == [1, 1 / 2, 1 / 3]
    check(frame.to_arrow().cast(pa.schema(much)), much)


def test_duckdb(much):
    duckdb = pytest.importorskip("duckdb")
    run = much
    assert duckdb.sql("select count(*) from run").fetchall() == [(len(run),)]
    found = duckdb.sql("select step, nan + pos_inf + neg_inf from run where name = 'bad' order by step").fetchall()
    assert found == [(0, 3), (1, 3), (2, 3)]
    joined = duckdb.sql("select count(*) from run a join run b using (writer, seq)").fetchall()
    assert joined == [(len(run),)]
    check(pa.table(duckdb.sql("select * from run order by writer, seq").to_arrow_table()).cast(pa.schema(run)), run)


def test_pandas_from_arrow(much):
    pandas = pytest.importorskip("pandas")
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("this pandas has no DataFrame.from_arrow")
    frame = pandas.DataFrame.from_arrow(much)
    assert len(frame) == len(much) and frame[frame.name == "loss"].value.tolist() == [1, 1 / 2, 1 / 3]


def frame_of_events(run):
    """run.frame() as its documentation says it, built from events one by one."""
    pandas = pytest.importorskip("pandas")
    before = ["rank", "writer", "seq", "time", "step", "call", "kind", "name", "value", "dtype", "shape"]
    behind = ["fingerprint", "io", "scope", "phase", "root", "cls", "site", "thread", "task"]
    rows = []
    for event in run:
        row = {name: getattr(event, name) for name in (*before, *behind) if name not in ("value", "time")}
        row["time"] = event.time_ns
        row["value"] = None if event.is_tensor else event.value
        if event.is_tensor and event.shape == () and not event.dtype.startswith("complex"):
            row["value"] = event.value.numpy().item()
        row |= {n: math.nan if event.stats is None else getattr(event.stats, n) for n in (*STATISTICS, *COUNTS)}
        rows.append(row)
    frame = pandas.DataFrame(rows, columns=[*before, *STATISTICS, *COUNTS, *behind])
    frame["time"] = pandas.to_datetime(frame["time"], unit="ns", utc=True)
    return frame.astype(dict.fromkeys(("min", "max", "abs_max"), float))


def test_frame_needs_pandas_only(much):
    pandas = pytest.importorskip("pandas")
    pandas.testing.assert_frame_equal(much.frame(), frame_of_events(much))
    values = much.frame().set_index(["name", "step"]).value
    assert values["int_huge", 0] == 10**400 and values["longest", 1] == 2**64 - 1 and values["empty_dict", 0] == {}
    assert values["truth", 2] is False and values["scalar_bool", 0] is True and values["text_empty", 0] == ""


def test_frame_imports_no_pyarrow_of_its_own(much):
    source = Path(tenscope.__file__).parent / "reading" / "frames.py"
    assert "import pyarrow" not in source.read_text()


def test_a_run_without_events(tmp_path):
    with tenscope.Run(tmp_path) as run:
        back = tenscope.open(run.path)
        assert len(back) == 0 and pa.table(back).num_rows == 0 and pa.table(back).schema == pa.schema(back)
        pytest.importorskip("pandas")
        assert len(back.frame()) == 0 and back.frame().columns[0] == "rank"


def test_a_running_run_is_read_as_it_stood(tmp_path):
    with tenscope.Run(tmp_path) as run:
        run.record("x", 1)
        back = tenscope.open(run.path)
        stream = pa.RecordBatchReader.from_stream(back)
        run.record("x", 2)
        assert stream.read_all()["value"].drop_null().to_pylist() == [1]


def test_a_crashed_run(tmp_path):
    program = f"""
import os, tenscope
run = tenscope.Run({str(tmp_path)!r}, name="r", metadata=False)
for i in range(100): run.record("x", i)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"TENSCOPE_QUIET": "1"})
    run = tenscope.open(tmp_path / "r")
    assert run.state == "crashed"
    table = pa.table(run)
    assert table.filter(pa.compute.equal(table["name"], "x"))["value"].to_pylist() == list(range(100))


def test_a_damaged_run_gives_what_is_whole(tmp_path):
    run = record_much(tmp_path)
    journal = run.path / "rank-0" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"seq":5', b'"seq":6')
    journal.write_bytes(b"".join(lines))
    damaged = tenscope.open(run.path)
    assert damaged.problems and len(damaged) == len(lines) - 1
    check(pa.table(damaged), damaged)
    told = [export(run.path, tmp_path / f"events{ending}").stderr for ending in (".parquet", ".csv")]
    assert told[0] == told[1] and told[0].startswith("tenscope: the run is damaged in 1 place, shown is what is whole")


def test_a_journal_that_changes_behind_the_readers_back_is_an_error(tmp_path):
    run = record_much(tmp_path)
    stream = pa.RecordBatchReader.from_stream(run)
    journal = run.path / "rank-0" / "journal.jsonl"
    text = journal.read_bytes()
    with journal.open("r+b") as file:
        file.write(text.replace(b'"loss"', b'"lose"'))
    with pytest.raises(OSError, match="the journal was changed"):
        stream.read_all()


def test_ranks(tmp_path):
    for rank in range(3):
        with tenscope.Run(tmp_path, name="r", rank=rank, world_size=3) as run:
            run.record("x", rank * 10)
    run = tenscope.open(tmp_path / "r")
    table = pa.table(run)
    check(table, run)
    assert set(table["writer"].to_pylist()) == {"rank-0", "rank-1", "rank-2"}
    check(pa.table(run.rank(2)), run.rank(2))
    assert set(pa.table(run.rank(2))["rank"].to_pylist()) == {2}
    pytest.importorskip("pandas")
    assert set(run.rank(1).frame()["rank"]) == {1}


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_left_behind_by_streams(much):
    """Read whole, half, not at all, and with a batch that outlives its stream."""

    def use():
        much.__arrow_c_stream__()
        much.__arrow_c_schema__()
        stream = pa.RecordBatchReader.from_stream(much)
        batch = stream.read_next_batch()
        del stream
        assert batch.num_rows == len(much)
        pa.table(much)

    for _ in range(20):
        use()
    gc.collect()
    before, arrow_before = resident_bytes(), pa.total_allocated_bytes()
    for _ in range(200):
        use()
    gc.collect()
    size = sum(
        buffer.size
        for column in pa.table(much).columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer
    )
    assert pa.total_allocated_bytes() <= arrow_before + 100_000
    assert resident_bytes() - before < 100 * size, "some of 400 tables were kept"


def test_a_table_outlives_its_recording(tmp_path):
    def make():
        return pa.table(record_much(tmp_path))

    table = make()
    gc.collect()
    table.validate(full=True)
    assert "loss" in table["name"].to_pylist()


VALUES = st.one_of(
    st.floats(), st.integers(-(10**30), 10**30), st.booleans(), st.none(),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.lists(st.floats(width=32), max_size=4).map(lambda items: np.array(items, dtype=np.float32)),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: np.array(number, dtype=np.int64)),
    st.just({}),
)  # fmt: skip
EVENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b.c", "é\n"]), VALUES, st.sampled_from(["", "input", "own word"]), st.booleans()),
    max_size=12,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS)
def test_random_recordings(tmp_path, events):
    with tenscope.Run(tmp_path, metadata=False) as run:
        for name, value, io_word, steps in events:
            run.record(name, value, io=io_word or None)
            if steps:
                run.step()
    back = tenscope.open(run.path)
    check(pa.table(back), back)
    pandas = pytest.importorskip("pandas")
    pandas.testing.assert_frame_equal(back.frame(), frame_of_events(back), check_dtype=len(back) > 0)


# Files


def export(*arguments, check=0):
    done = subprocess.run(
        [sys.executable, "-m", "tenscope", "export", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


def test_parquet(much, tmp_path):
    import pyarrow.parquet

    told = export(much.path, tmp_path / "events.parquet").stdout
    assert told == f"{len(much)} events to {tmp_path / 'events.parquet'}\n"
    table = pyarrow.parquet.read_table(tmp_path / "events.parquet")
    assert table.schema.equals(pa.schema(much))
    check(table, much)
    assert [path.name for path in tmp_path.iterdir()] == ["events.parquet"]
    group = pyarrow.parquet.read_metadata(tmp_path / "events.parquet").row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    assert columns["name"].has_dictionary_page
    assert not columns["fingerprint"].has_dictionary_page and not columns["mean"].has_dictionary_page


@pytest.mark.parametrize("ending", [".arrow", ".feather"])
def test_ipc(much, tmp_path, ending):
    import pyarrow.feather

    export(much.path, tmp_path / f"events{ending}")
    check(pyarrow.feather.read_table(tmp_path / f"events{ending}"), much)


def test_csv(much, tmp_path):
    export(much.path, tmp_path / "events.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "events.csv").read_text(), newline="")))
    table = pa.table(much)
    assert rows[0] == table.column_names and len(rows) == len(much) + 1
    for told, row in zip(rows[1:], table.to_pylist(), strict=True):
        for name, cell in zip(rows[0], told, strict=True):
            value = row[name]
            if value is None or value == "":
                assert cell == ""
            elif isinstance(value, bool):
                assert cell == str(value).lower()
            elif isinstance(value, float):
                assert same(float(cell), value)
            elif name == "time":
                assert cell == f"{value.strftime('%Y-%m-%dT%H:%M:%S')}.{value.value % 10**9:09}Z"
            else:
                assert cell == str(value)
    lines = (tmp_path / "events.csv").read_text().splitlines()
    empty = next(line for line in lines if ",text_empty,text," in line)
    assert ',text_empty,text,,"",,' in empty, "an empty text is told from a missing one"


def test_pandas_and_duckdb_read_the_csv(much, tmp_path):
    pandas = pytest.importorskip("pandas")
    duckdb = pytest.importorskip("duckdb")
    file = tmp_path / "events.csv"
    export(much.path, file)
    frame = pandas.read_csv(file, parse_dates=["time"])
    assert (frame.time == pa.table(much)["time"].to_pandas()).all() and len(frame) == len(much)
    found = duckdb.sql(f"select text from '{file}' where name = 'text'").fetchall()
    assert found[0][0] == ODD["text"]
    assert duckdb.sql(f"select count(*) from '{file}'").fetchall() == [(len(much),)]


def test_filters(much, tmp_path):
    import pyarrow.parquet

    for ending in (".parquet", ".csv"):
        export(much.path, tmp_path / f"some{ending}", "--name", "*s*", "--step", "1:3", "--call", 0, "--rank", 0)
    table = pyarrow.parquet.read_table(tmp_path / "some.parquet")
    expected = [e for e in much.find("*s*", call=0) if 1 <= e.step < 3]
    assert expected and table["seq"].to_pylist() == [e.seq for e in expected]
    with open(tmp_path / "some.csv", newline="") as file:
        assert [int(row["seq"]) for row in csv.DictReader(file)] == [e.seq for e in expected]


def test_mistakes(much, tmp_path):
    assert "did you mean 'loss'" in export(much.path, tmp_path / "a.csv", "--name", "los", check=2).stderr
    assert "no event matches" in export(much.path, tmp_path / "a.parquet", "--step", 99, check=2).stderr
    assert ".parquet" in export(much.path, tmp_path / "a.xlsx", check=2).stderr
    assert "needs a file" in export(much.path, check=2).stderr
    assert "No such file" in export(much.path, tmp_path / "none" / "a.parquet", check=2).stderr
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_it_is_said_what_to_install(much, tmp_path):
    (tmp_path / "pyarrow.py").write_text("raise ImportError('No module named pyarrow')")
    done = subprocess.run(
        [sys.executable, "-m", "tenscope", "export", much.path, tmp_path / "a.parquet", "--json"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "pip install 'tenscope[arrow]'" in done.stdout and "Traceback" not in done.stderr
