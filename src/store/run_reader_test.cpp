#include <gtest/gtest.h>
#include <sys/file.h>

#include "store/run_fixture.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {
namespace {

template <class Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::Io, "none");
}

TEST(Reader, events_read_back_whole) {
  RunFixture run;
  run.add(
      R"("kind":"change","name":"é\"q","step":3,"call":2,"site":"a.py:1","scope":"f","io":"local","phase":"forward",)"
      R"("root":"G#0","class":"G","task":"T","meta":{"old":1, "x":[{}]},"value":1.5)");
  const Reader reader(run.path());
  ASSERT_EQ(reader.event_count(), 1u);
  EXPECT_TRUE(reader.problems().empty());
  const Event event = reader.event(0);
  EXPECT_EQ(event.time_ns, 1700000000000000000);
  EXPECT_EQ(event.thread, 1u);
  EXPECT_EQ(event.kind, EventKind::Change);
  EXPECT_EQ(event.name, "é\"q");
  EXPECT_EQ(reader.name(0), "é\"q");
  EXPECT_EQ(event.step, 3);
  EXPECT_EQ(event.call, 2);
  EXPECT_EQ(event.site + event.scope + event.root + event.cls + event.task, "a.py:1fG#0GT");
  EXPECT_EQ(event.io, Io::Local);
  EXPECT_EQ(event.phase, Phase::Forward);
  EXPECT_EQ(event.meta, R"({"old":1, "x":[{}]})");
  EXPECT_EQ(std::get<double>(event.value), 1.5);
}

TEST(Reader, words_that_are_not_known_are_kept) {
  RunFixture run;
  run.add(R"("kind":"value","name":"x","step":0,"call":0,"io":"router_logits","phase":"decode","value":1)");
  run.add(R"("kind":"value","name":"x","step":0,"call":1,"io":"other","value":1)");
  const Reader reader(run.path());
  EXPECT_TRUE(reader.problems().empty());
  const Event event = reader.event(0), other = reader.event(1);
  EXPECT_EQ(event.io, Io::Other);
  EXPECT_EQ(event.phase, Phase::Other);
  EXPECT_EQ(event.io_word(), "router_logits");
  EXPECT_EQ(event.phase_word(), "decode");
  EXPECT_EQ(other.io_word(), "other");
  EXPECT_EQ(other.phase, Phase::None);
  EXPECT_EQ(other.phase_word(), "");
}

TEST(Reader, views_outlive_the_release_of_their_memory) {
  RunFixture run;
  run.add_tensor<float>("x", 0, {1, 2});
  run.close();
  const Reader reader(run.path());
  reader.release(0);  // nothing is mapped yet
  const TensorData data = reader.tensor(0);
  reader.release(0);
  EXPECT_EQ(static_cast<const float*>(data.view.data)[1], 2);
  EXPECT_EQ(reader.tensor(0).view.data, data.view.data);
}

TEST(Reader, says_what_its_writer_lost) {
  RunFixture run;
  run.add_tensor<float>("x", 0, {1, 2});
  run.add(R"("kind":"dropped","name":"no space","step":0,"value":3)");
  run.add(R"("kind":"dropped","name":"no space","step":0,"value":12)");
  run.add(R"("kind":"dropped","name":"watch: max_changes reached","step":0,"value":7)");
  run.close();
  const Reader reader(run.path());
  ASSERT_EQ(reader.losses().size(), 2u);
  EXPECT_EQ(to_string(reader.losses()[0]), "rank-0: 15 events were lost: no space");
  EXPECT_EQ(to_string(reader.losses()[1]), "rank-0: 7 events were left out: watch: max_changes reached");
  EXPECT_TRUE(reader.losses()[1].is_limit);
  EXPECT_EQ(reader.writers()[0].dropped, 15u);
  ASSERT_EQ(reader.problems().size(), 1u);
  EXPECT_EQ(reader.problems()[0].kind, ProblemKind::Loss);
  EXPECT_EQ(reader.problems()[0].reason, "rank-0: 15 events were lost: no space");
}

TEST(Reader, a_crashed_writer_may_have_lost_more_than_it_said) {
  RunFixture run;
  run.add(R"("kind":"dropped","name":"no space","step":0,"value":1)");
  const Reader reader(run.path());
  ASSERT_EQ(reader.losses().size(), 1u);
  EXPECT_EQ(to_string(reader.losses()[0]), "rank-0: at least 1 event was lost: no space");
}

TEST(Reader, says_how_many_tensors_a_budget_cut) {
  const auto tensor = [](std::string_view more) {
    return fmt::format(R"("kind":"value","name":"x","step":0,"call":0,"tensor":{{"dtype":"float32","shape":[1],)"
                       R"("fp":"00000000000000000000000000000000","stats":{{"min":0,"max":1}}{}}})",
                       more);
  };
  for (const std::string_view mark : {R"(,"cut":"budget")", ""}) {
    RunFixture run;
    run.add(tensor(""));  // of a program that asked for statistics only
    run.add(R"("kind":"note","name":"budget","step":0,"value":"used up")");
    run.add(tensor(mark));
    run.add(tensor(mark));
    run.close();
    const Reader reader(run.path());
    ASSERT_EQ(reader.losses().size(), 1u);
    EXPECT_EQ(to_string(reader.losses()[0]), "rank-0: the bytes of 2 tensors were left out: budget");
    EXPECT_TRUE(reader.losses()[0].is_limit);
    EXPECT_TRUE(reader.problems().empty());
    EXPECT_EQ(std::get<TensorRecord>(reader.event(2).value).is_cut, !mark.empty());
  }
}

TEST(Reader, a_missing_segment_is_a_loss) {
  RunFixture run;
  run.add_tensor<float>("x", 0, {1, 2});
  run.add_tensor<float>("y", 0, {3, 4});
  run.close();
  fs::remove(segment_path(run.writer(), 0, true));
  const Reader reader(run.path());
  ASSERT_EQ(reader.losses().size(), 1u);
  EXPECT_EQ(to_string(reader.losses()[0]), "rank-0: the bytes of 2 tensors were lost: 000000.safetensors is missing");
  EXPECT_EQ(reader.problems().size(), 1u);
  const auto problems = verify(run.path());
  EXPECT_EQ(
      std::count_if(problems.begin(), problems.end(), [](const Problem& p) { return p.kind == ProblemKind::Loss; }), 1);
}

TEST(Reader, a_rank_without_a_folder_is_a_loss) {
  RunFixture run(R"({"tenscope_format":1,"started_ns":1700000000000000000,"command":[],"world_size":2})");
  run.close();
  const Reader reader(run.path());
  ASSERT_EQ(reader.losses().size(), 1u);
  EXPECT_EQ(reader.losses()[0].writer, "rank-1");
  EXPECT_EQ(reader.problems().size(), 1u);
}

TEST(Reader, says_that_the_program_failed) {
  const auto ended = [](const std::vector<std::string>& notes, bool is_closed) {
    RunFixture run;
    for (const std::string& note : notes) run.add(note);
    if (is_closed) run.close();
    const Reader reader(run.path());
    return std::pair(state_text(reader.writers()), reader.writers()[0].exception_message);
  };
  const std::string old_note = R"("kind":"note","name":"exception","step":0,"value":"KeyError: 'a: b'")";
  const std::string note = R"("kind":"note","name":"exception","step":0,"value":"lib.Bad: no","meta":)"
                           R"({"class":"lib.Bad","message":"no","site":"a.py:3"})";
  using Ending = std::pair<std::string, std::string>;
  EXPECT_EQ(ended({}, true), Ending("closed", ""));
  EXPECT_EQ(ended({old_note}, true), Ending("failed (KeyError)", "'a: b'"));
  EXPECT_EQ(ended({note}, true), Ending("failed (lib.Bad)", "no"));
  EXPECT_EQ(ended({old_note, note}, true), Ending("failed (lib.Bad)", "no"));
  EXPECT_EQ(ended({R"("kind":"note","name":"signal","step":0,"value":"SIGTERM")"}, true),
            Ending("failed (SIGTERM)", ""));
  EXPECT_EQ(ended({R"("kind":"value","name":"exception","step":0,"call":0,"value":"KeyError: 1")"}, true),
            Ending("closed", ""));
  EXPECT_EQ(ended({note}, false), Ending("crashed", "no"));
}

TEST(Reader, values_of_every_kind) {
  RunFixture run;
  const std::vector<std::string> values{"null",
                                        "true",
                                        "-9223372036854775808",
                                        "18446744073709551615",
                                        "1.0",
                                        R"({"float":"nan"})",
                                        R"({"float":"-inf"})",
                                        R"({"int":"-123456789012345678901234567890"})",
                                        R"("text")"};
  for (const auto& value : values) run.add(fmt::format(R"("kind":"value","name":"x","value":{})", value));
  run.add(R"("kind":"enter")");
  const Reader reader(run.path());
  const auto value = [&](EventId id) { return reader.event(id).value; };
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(value(0)));
  EXPECT_EQ(std::get<bool>(value(1)), true);
  EXPECT_EQ(std::get<std::int64_t>(value(2)), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(std::get<BigInt>(value(3)).digits, "18446744073709551615");
  EXPECT_EQ(std::get<double>(value(4)), 1.0);
  EXPECT_TRUE(std::isnan(std::get<double>(value(5))));
  EXPECT_EQ(std::get<double>(value(6)), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(std::get<BigInt>(value(7)).digits, "-123456789012345678901234567890");
  EXPECT_EQ(std::get<std::string>(value(8)), "text");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(value(9)));
}

TEST(Reader, exact_integers_in_statistics) {
  RunFixture run;
  run.add(
      R"("kind":"value","name":"u","tensor":{"dtype":"uint64","shape":[2],"fp":"0123456789abcdef0123456789abcdef",)"
      R"("stats":{"min":9007199254740993,"max":18446744073709551615,"mean":null,"l2":{"float":"inf"},"nan":3,"zero":1}})");
  const Reader reader(run.path());
  const auto tensor = std::get<TensorRecord>(reader.event(0).value);
  EXPECT_EQ(tensor.stats.exact_min, 9007199254740993);
  EXPECT_EQ(static_cast<std::uint64_t>(tensor.stats.exact_max), 18446744073709551615u);
  EXPECT_EQ(tensor.stats.max, 18446744073709551615.0);
  EXPECT_TRUE(std::isnan(tensor.stats.mean));
  EXPECT_TRUE(std::isinf(tensor.stats.l2));
  EXPECT_EQ(tensor.stats.count, 2);
  EXPECT_EQ(tensor.stats.nan, 3);
  EXPECT_EQ(tensor.device, "cpu");
  EXPECT_FALSE(tensor.blob);
  EXPECT_TRUE(reader.has_nonfinite(0));
  EXPECT_EQ(error_of([&] { reader.tensor(0); }).code(), ErrorCode::NotFound);
}

TEST(Reader, tensors_are_mapped_from_open_and_sealed_segments) {
  RunFixture run;
  run.add_tensor<float>("w", 0, {1, 2, 3});
  run.add_tensor<double>("v", 1, {4.5});
  const Reader reader(run.path());
  const TensorData w = reader.tensor(0);
  EXPECT_EQ(w.view.dtype, DType::F32);
  EXPECT_EQ(w.view.shape[0], 3);
  EXPECT_EQ(static_cast<const float*>(w.view.data)[2], 3.0F);
  fs::rename(segment_path(run.writer(), 0, true), segment_path(run.writer(), 0, false));
  const Reader later(run.path());
  EXPECT_EQ(*static_cast<const double*>(later.tensor(1).view.data), 4.5);
}

TEST(Reader, a_view_outlives_its_reader_through_its_owner) {
  RunFixture run;
  run.add_tensor<std::int64_t>("w", 0, {7, 8});
  TensorData data;
  {
    const Reader reader(run.path());
    data = reader.tensor(0);
  }
  EXPECT_EQ(static_cast<const std::int64_t*>(data.view.data)[data.view.shape[0] - 1], 8);
}

TEST(Reader, damaged_bytes_are_never_given_out) {
  RunFixture run;
  run.add_tensor<float>("w", 0, {1, 2, 3});
  const fs::path segment = segment_path(run.writer(), 0, true);
  std::string bytes = RunFixture::read(segment);
  bytes[RunFixture::kHeader + 5] ^= 1;
  RunFixture::write(segment, bytes);
  EXPECT_EQ(error_of([&] { Reader(run.path()).tensor(0); }).code(), ErrorCode::Corrupt);
  fs::resize_file(segment, RunFixture::kHeader + 4);
  EXPECT_EQ(error_of([&] { Reader(run.path()).tensor(0); }).code(), ErrorCode::Corrupt);
  fs::remove(segment);
  EXPECT_EQ(error_of([&] { Reader(run.path()).tensor(0); }).code(), ErrorCode::NotFound);
}

TEST(Reader, hostile_places_and_shapes_are_refused) {
  const std::vector<std::string> tensors{
      R"("dtype":"float32","shape":[3],"at":[0,18446744073709551615,12])",
      R"("dtype":"float32","shape":[3],"at":[0,9223372036854775807,12])",
      R"("dtype":"float32","shape":[3],"at":[99,8,12])",
      R"("dtype":"float32","shape":[3],"at":[0,8,13])",
      R"("dtype":"float32","shape":[-3],"at":[0,8,12])",
      R"("dtype":"float32","shape":[4294967296,4294967296,4294967296],"at":[0,8,12])",
      R"("dtype":"float99","shape":[3],"at":[0,8,12])",
      R"("dtype":"float32","shape":"x","at":[0,8,12])",
      R"("dtype":"float32","shape":[3],"at":[0,8])",
      R"("dtype":"float32","shape":[3],"at":[0,8,12],"stats":[])",
      R"("dtype":"float32","shape":[3],"at":[0,8,12],"fp":"xyz")",
      R"("shape":[3])",
      R"("dtype":"float32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])",
  };
  for (const auto& tensor : tensors) {
    RunFixture run;
    run.add(fmt::format(R"("kind":"value","name":"x","tensor":{{{}}})", tensor));
    const Reader reader(run.path());
    if (reader.event_count() == 1) {
      EXPECT_THROW(reader.tensor(0), Error) << tensor;
    } else {
      EXPECT_EQ(reader.problems().size(), 1u) << tensor;
    }
  }
}

TEST(Reader, a_line_that_is_no_event_is_passed_over) {
  RunFixture run;
  run.add(R"("kind":"value","name":"a")");
  RunFixture::append(run.journal(), sealed_line(R"({"seq":1,"kind":"elephant")"));
  RunFixture::append(run.journal(), sealed_line(R"({"seq":1,"kind":["broken")"));
  RunFixture::append(run.journal(), sealed_line(R"({"kind":"value")"));
  run.line("");
  run.add(R"("kind":"value","name":"b")");
  const Reader reader(run.path());
  EXPECT_EQ(reader.event_count(), 2u);
  EXPECT_EQ(reader.problems().size(), 3u);
}

TEST(Reader, gaps_are_told_but_not_twice) {
  RunFixture run;
  run.add(R"("kind":"value","name":"a")");
  run.line("");
  run.add(R"("kind":"value","name":"b")");
  EXPECT_EQ(Reader(run.path()).problems().size(), 1u);
  std::string damaged = run.line(R"("kind":"value","name":"c")");
  damaged[20] ^= 1;
  RunFixture::append(run.journal(), damaged);
  run.add(R"("kind":"value","name":"d")");
  EXPECT_EQ(Reader(run.path()).problems().size(), 2u);
}

TEST(Reader, finds_by_glob_step_call_rank_and_kind) {
  RunFixture run;
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"blocks.0.q", "blocks.1.q", "loss"}) {
      run.add(fmt::format(R"("kind":"value","name":"{}","step":{},"call":0,"value":1)", name, step));
    }
    run.add(fmt::format(R"("kind":"step","step":{})", step + 1));
  }
  const Reader reader(run.path());
  EXPECT_EQ(reader.find({}).size(), 12u);
  EXPECT_EQ(reader.find({.name = "blocks.*.q"}).size(), 6u);
  EXPECT_EQ(reader.find({.name = "loss", .step = 2}).size(), 1u);
  EXPECT_EQ(reader.find({.name = "loss", .step = 2, .call = 1}).size(), 0u);
  EXPECT_EQ(reader.find({.rank = 1}).size(), 0u);
  EXPECT_EQ(reader.find({.kind = EventKind::Step}).size(), 3u);
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"blocks.0.q", "blocks.1.q", "loss"}));
  EXPECT_EQ(reader.steps(), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(reader.steps("loss"), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(reader.steps("none"), std::vector<std::int64_t>{});
}

// What a reader says, as far as it can be compared.
std::string told_by(const Reader& reader) {
  std::string text;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    const Event event = reader.event(id);
    text += fmt::format("{} {} {} {} {} {}\n", reader.writer_index(id), event.seq, reader.name(id), event.name,
                        reader.step(id), reader.call(id));
  }
  for (const WriterInfo& writer : reader.writers())
    text += fmt::format("{} {} {} {}\n", writer.folder, writer.event_count, writer.closed, writer.dropped);
  for (const Problem& problem : reader.problems()) text += fmt::format("{} {}\n", problem.offset, problem.reason);
  for (const Loss& loss : reader.losses()) text += to_string(loss) + "\n";
  return text;
}

TEST(Reader, reopened_it_is_as_if_read_anew) {
  RunFixture run;
  const auto value = [&](std::string_view name, int step) {
    return fmt::format(R"("kind":"value","name":"{}","step":{},"call":0,"value":1)", name, step);
  };
  run.add(value("x", 0));
  run.add(value("y", 0));
  Reader reader(run.path());
  const auto expect_the_same = [&](std::string_view what) {
    const Reader again = reader.reopened(), anew(run.path());
    EXPECT_EQ(told_by(again), told_by(anew)) << what;
    EXPECT_EQ(again.names(), anew.names()) << what;
    reader = again.reopened();
    EXPECT_EQ(told_by(reader), told_by(anew)) << what;
  };
  expect_the_same("nothing has come");
  run.add(value("z", 1));
  run.add(value("x", 1));
  expect_the_same("a new name and a known one");
  run.add_tensor("t", 1, std::vector<float>{1, 2});
  expect_the_same("a tensor");
  EXPECT_EQ(std::get<TensorRecord>(reader.event(4).value).shape, std::vector<std::int64_t>{2});
  const fs::path other = run.path() / "rank-1";
  fs::create_directories(other);
  RunFixture::write(other / "journal.jsonl", RunFixture().line(value("of_another", 0)));
  run.add(value("y", 2));
  expect_the_same("another writer");
  RunFixture::append(run.journal(), R"({"seq":6,"t":17)");
  expect_the_same("a torn line");
  RunFixture::append(run.journal(), "\n");
  run.add(value("x", 3));
  expect_the_same("damage, and a line behind it");
  run.add(R"("kind":"dropped","name":"no space","step":3,"count":7)");
  run.add(value("x", 4));
  expect_the_same("a loss");
  run.close();
  expect_the_same("the end");
  fs::rename(run.journal(), run.base() / "old");
  RunFixture::write(run.journal(), RunFixture().line(value("anew", 0)));
  expect_the_same("another journal in its place");
}

TEST(Reader, writers_parts_and_endings) {
  RunFixture run(R"({"tenscope_format":1,"started_ns":1,"keep":"last"})");
  for (int i = 0; i < 5; ++i) run.line("");  // dropped by the ring
  RunFixture::write(run.writer() / "journal-000002.jsonl", run.line(R"("kind":"value","name":"a")"));
  RunFixture::write(run.writer() / "journal-000010.jsonl", run.line(R"("kind":"value","name":"b")"));
  run.add(R"("kind":"value","name":"c")");
  run.close();
  fs::create_directories(run.path() / "rank-0.pid-77");
  RunFixture::write(run.path() / "rank-0.pid-77" / "journal.jsonl",
                    sealed_line(R"({"seq":0,"kind":"value","name":"child")"));
  const int lock = ::open((run.path() / "rank-0.pid-77" / "journal.jsonl").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  const Reader reader(run.path());
  ::close(lock);
  EXPECT_TRUE(reader.problems().empty());
  ASSERT_EQ(reader.writers().size(), 2u);
  EXPECT_TRUE(reader.writers()[0].closed);
  EXPECT_FALSE(reader.writers()[0].running);
  EXPECT_FALSE(reader.writers()[1].closed);
  EXPECT_TRUE(reader.writers()[1].running);
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "b", "c", "child"}));
  EXPECT_EQ(reader.writer_index(4), 1u);
}

TEST(Reader, opens_the_newest_run_and_refuses_a_newer_format) {
  RunFixture run(R"({"tenscope_format":1,"started_ns":5})");
  fs::create_directories(run.base() / "older");
  RunFixture::write(run.base() / "older" / "run.json", R"({"tenscope_format":1,"started_ns":4})");
  EXPECT_EQ(Reader(run.base()).path(), run.path());
  EXPECT_EQ(list_runs(run.base()).size(), 2u);
  RunFixture::write(run.path() / "run.json", R"({"tenscope_format":2,"started_ns":5})");
  EXPECT_EQ(error_of([&] { Reader reader(run.path()); }).code(), ErrorCode::Version);
  RunFixture::write(run.path() / "run.json", "{nonsense");
  EXPECT_EQ(Reader(run.path()).problems().size(), 1u);
  EXPECT_EQ(error_of([&] { Reader reader(run.base() / "nowhere"); }).code(), ErrorCode::NotFound);
}

}  // namespace
}  // namespace tenscope::store
