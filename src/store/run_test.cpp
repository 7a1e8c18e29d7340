#include "tenscope/run.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "store/read_back.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

using store::ScratchFolder;
using Recorder = Run;  // inside a test, Run is a member of testing::Test

TEST(Run, records_and_reads_back_every_kind_of_value) {
  ScratchFolder scratch;
  const auto data = ramp(12);
  fs::path path;
  {
    Recorder run(scratch.path());
    path = run.path();
    run.record("q", view(data.data(), {3, 4}));
    run.record("loss", 1.0);
    run.record("nan", std::numeric_limits<double>::quiet_NaN());
    run.record("count", std::int64_t{-5});
    run.record("text", std::string_view("a \"quoted\"\nline \x01 \xff é"));
    run.record({.name = "none"}, EventValue(nullptr));
    run.record({.name = "big"}, EventValue(BigInt{"123456789012345678901234567890"}));
    run.record({.name = "yes", .site = "a.py:3", .scope = "f", .meta = "{\"k\":\n1}"}, EventValue(true));
  }
  const Reader reader(path);
  ASSERT_TRUE(reader.problems().empty());
  EXPECT_TRUE(reader.writers()[0].closed);
  EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "q"})), data);
  const auto value = [&](const char* name) { return reader.event(only(reader, {.name = name})).value; };
  EXPECT_EQ(std::get<double>(value("loss")), 1.0);
  EXPECT_TRUE(std::isnan(std::get<double>(value("nan"))));
  EXPECT_EQ(std::get<std::int64_t>(value("count")), -5);
  EXPECT_EQ(std::get<std::string>(value("text")), "a \"quoted\"\nline \x01 \xEF\xBF\xBD é");
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(value("none")));
  EXPECT_EQ(std::get<BigInt>(value("big")).digits, "123456789012345678901234567890");
  const auto yes = reader.event(only(reader, {.name = "yes"}));
  EXPECT_EQ(std::get<bool>(yes.value), true);
  EXPECT_EQ(yes.site, "a.py:3");
  EXPECT_EQ(yes.scope, "f");
  expect_healthy(path);
}

TEST(Run, numbers_of_any_type_are_recorded_without_a_cast) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  run.record("int", -3);
  run.record("unsigned", 3u);
  run.record("size", std::size_t{7});
  run.record("huge", std::numeric_limits<std::uint64_t>::max());
  run.record("float", 0.5f);
  run.record("bool", true);
  run.record({.name = "info", .io = Io::Loss}, std::uint16_t{9});
  run.close();
  const Reader reader(run.path());
  const auto value = [&](const char* name) { return reader.event(only(reader, {.name = name})).value; };
  EXPECT_EQ(std::get<std::int64_t>(value("int")), -3);
  EXPECT_EQ(std::get<std::int64_t>(value("unsigned")), 3);
  EXPECT_EQ(std::get<std::int64_t>(value("size")), 7);
  EXPECT_EQ(std::get<BigInt>(value("huge")).digits, "18446744073709551615");
  EXPECT_EQ(std::get<double>(value("float")), 0.5);
  EXPECT_EQ(std::get<bool>(value("bool")), true);
  EXPECT_EQ(std::get<std::int64_t>(value("info")), 9);
}

TEST(Run, inputs_become_a_member_of_the_meta) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  const std::vector<std::string_view> inputs{"blk.0.attn_q.weight", "a \"quoted\" name"};
  run.record({.name = "alone", .inputs = inputs}, 1);
  run.record({.name = "empty", .meta = "{ }", .inputs = inputs}, 1);
  run.record({.name = "merged", .meta = "\n{\"op\":\n\"MUL_MAT\"}", .inputs = inputs}, 1);
  run.close();
  const Reader reader(run.path());
  ASSERT_TRUE(reader.problems().empty());
  const auto meta = [&](const char* name) { return reader.event(only(reader, {.name = name})).meta; };
  const std::string expected = R"({"inputs":["blk.0.attn_q.weight","a \"quoted\" name"])";
  EXPECT_EQ(meta("alone"), expected + "}");
  EXPECT_EQ(meta("empty"), expected + " }");
  EXPECT_EQ(meta("merged"), expected + R"(,"op": "MUL_MAT"})");
}

TEST(Run, shapes_are_integers_of_any_type) {
  ScratchFolder scratch;
  const auto data = ramp(12);
  const std::size_t rows = 3;
  const std::vector<std::size_t> sizes{3, 4};
  const std::array<int, 2> strides{1, 3};
  const std::int64_t flat[] = {12};
  Recorder run(scratch.path());
  run.record("braces", view(data.data(), {rows, 4}));
  run.record("vector", view(data.data(), sizes));
  run.record("strided", view(data.data(), sizes, strides));
  run.record("strided_braces", view(static_cast<const void*>(data.data()), DType::F32, {rows, 4}, {1, rows}));
  run.record("array", view(static_cast<const void*>(data.data()), DType::F32, flat));
  run.record("span", view(data.data(), std::span(sizes)));
  run.record("scalar", view(data.data(), {}));
  run.close();
  const Reader reader(run.path());
  const auto record = [&](const char* name) {
    return std::get<TensorRecord>(reader.event(only(reader, {.name = name})).value);
  };
  const std::vector<std::int64_t> shape{3, 4};
  for (const char* name : {"braces", "vector", "strided", "strided_braces", "span"})
    EXPECT_EQ(record(name).shape, shape);
  EXPECT_EQ(record("array").shape, std::vector<std::int64_t>{12});
  EXPECT_TRUE(record("scalar").shape.empty());
  const std::vector<float> transposed{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
  EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "strided"})), transposed);
  EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "strided_braces"})), transposed);
  EXPECT_THROW(view(data.data(), std::vector<int>(kMaxRank + 1, 1)), Error);
  EXPECT_THROW(view(data.data(), {3, 4}, {1}), Error);
}

TEST(Run, every_dtype_and_stride_reads_back) {
  ScratchFolder scratch;
  std::vector<std::uint8_t> bytes(16 * 24);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i % 2);
  const std::vector<std::int64_t> shape{4, 6}, transposed{1, 4}, scalar{}, empty{0, 3};
  Recorder run(scratch.path());
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(to_string(dtype));
    run.record(name, {bytes.data(), dtype, shape, {}});
    run.record(name + ".t", {bytes.data(), dtype, shape, transposed});
    run.record(name + ".0d", {bytes.data(), dtype, scalar, {}});
    run.record(name + ".empty", {nullptr, dtype, empty, {}});
  }
  run.close();
  const Reader reader(run.path());
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(to_string(dtype));
    const auto expect = [&](const std::string& key, const TensorView& source) {
      std::vector<std::byte> wanted(size_bytes(source));
      kernels::copy_c_order(source, wanted.data());
      const auto id = only(reader, {.name = key});
      EXPECT_EQ(values_of<std::byte>(reader, id), wanted) << key;
      const auto event = reader.event(id);
      const auto& record = std::get<TensorRecord>(event.value);
      EXPECT_EQ(record.dtype, dtype);
      EXPECT_TRUE(std::equal(record.shape.begin(), record.shape.end(), source.shape.begin(), source.shape.end()));
      EXPECT_EQ(record.fingerprint, kernels::fingerprint(source));
    };
    expect(name, {bytes.data(), dtype, shape, {}});
    expect(name + ".t", {bytes.data(), dtype, shape, transposed});
    expect(name + ".0d", {bytes.data(), dtype, scalar, {}});
    expect(name + ".empty", {nullptr, dtype, empty, {}});
  }
  expect_healthy(run.path());
}

TEST(Run, equal_bytes_are_stored_once) {
  ScratchFolder scratch;
  for (const std::size_t count : {256u, 1u << 18}) {  // small and large go different ways
    Recorder run(scratch.path());
    auto data = ramp(count);
    const auto size = static_cast<std::int64_t>(count);
    EXPECT_FALSE(run.record("x", view(data.data(), {size})).duplicate);
    EXPECT_TRUE(run.record("x", view(data.data(), {size})).duplicate);
    EXPECT_TRUE(run.record("x", view(data.data(), {size})).duplicate);
    EXPECT_TRUE(run.record("y", view(data.data(), {2, size / 2})).duplicate);
    data[0] = -1;
    EXPECT_FALSE(run.record("x", view(data.data(), {size})).duplicate);
    const auto as_int = run.record("x", view(data.data(), DType::I32, {size}));
    EXPECT_FALSE(as_int.duplicate);  // another dtype is another tensor
    run.close();
    const Reader reader(run.path());
    const auto ids = reader.find({.name = "x"});
    ASSERT_EQ(ids.size(), 5u);
    EXPECT_EQ(reader.call(ids[4]), 4);
    EXPECT_EQ(values_of<float>(reader, ids[3])[0], -1);
    const auto stats = std::get<TensorRecord>(reader.event(ids[1]).value).stats;
    EXPECT_EQ(stats.max, static_cast<double>(count - 1));
    expect_healthy(run.path());
  }
}

TEST(Run, statistics_only_keeps_no_bytes) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  const auto data = ramp(8);
  run.record({.name = "x"}, view(data.data(), {8}), Values::Stats);
  EXPECT_FALSE(run.record("x", view(data.data(), {8})).duplicate);
  run.close();
  const Reader reader(run.path());
  const auto ids = reader.find({.name = "x"});
  EXPECT_FALSE(std::get<TensorRecord>(reader.event(ids[0]).value).blob.has_value());
  EXPECT_EQ(std::get<TensorRecord>(reader.event(ids[0]).value).stats.max, 7);
  EXPECT_EQ(values_of<float>(reader, ids[1]), data);
}

TEST(Run, steps_and_calls_are_counted) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  EXPECT_EQ(run.record("a", 1.0).step, 0);
  EXPECT_EQ(run.record("a", 1.0).call, 1);
  EXPECT_EQ(run.record({.kind = EventKind::Change, .name = "a"}, EventValue(2.0)).call, 2);
  EXPECT_EQ(run.record({.kind = EventKind::Enter, .name = "a"}, EventValue()).call, 0);
  EXPECT_EQ(run.step(), 1);
  const auto first = run.record("a", 1.0);
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.call, 0);
  run.step(17);
  EXPECT_EQ(run.current_step(), 17);
  EXPECT_EQ(run.record({.name = "a", .step = 3}, EventValue(1.0)).step, 3);
  EXPECT_EQ(run.record({.name = "a", .step = 3}, EventValue(1.0)).call, 1);
  EXPECT_EQ(run.record({.name = "a", .step = 4}, EventValue(1.0)).call, 0);
  EXPECT_EQ(run.record({.name = "a", .call = 9}, EventValue(1.0)).call, 9);
  EXPECT_EQ(run.record("a", 1.0).call, 10);
  run.close();
  const Reader reader(run.path());
  EXPECT_EQ(reader.steps("a"), (std::vector<std::int64_t>{0, 1, 3, 4, 17}));
  EXPECT_EQ(reader.find({.kind = EventKind::Step}).size(), 2u);
}

TEST(Run, a_step_that_comes_back_goes_on_counting) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  const EventInfo early{.name = "v", .step = 5};
  EXPECT_EQ(run.record(early, EventValue(1.0)).call, 0);
  run.step();
  EXPECT_EQ(run.record(early, EventValue(1.0)).call, 1);
  run.step(5);
  EXPECT_EQ(run.record("v", 1.0).call, 2);
  run.step(6);
  run.step(5);
  const auto data = ramp(4);
  EXPECT_EQ(run.record("v", view(data.data(), {4})).call, 3);
  run.close();
  const Reader reader(run.path());
  for (std::int64_t call = 0; call < 4; ++call) only(reader, {.name = "v", .step = 5, .call = call});
}

TEST(Run, disabled_and_closed_runs_record_nothing) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  run.disable();
  EXPECT_FALSE(run.record("a", 1.0).kept);
  run.enable();
  EXPECT_TRUE(run.record("a", 1.0).kept);
  run.close();
  run.close();
  run.enable();
  EXPECT_FALSE(run.enabled());
  EXPECT_FALSE(run.record("a", 1.0).kept);
  EXPECT_EQ(run.dropped(), 0u);
  const Reader reader(run.path());
  EXPECT_EQ(reader.find({.name = "a"}).size(), 1u);
  EXPECT_EQ(count_files(run.writer_path(), ".open"), 0u);
}

TEST(Run, repeated_keys_and_strange_names_stay_legal) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  auto data = ramp(4);
  const std::string strange = "bl\"o\\ck\n\xff é 💡/" + std::string(10'000, 'n');
  for (int i = 0; i < 3; ++i) {
    data[0] = static_cast<float>(i);
    run.record({.name = strange, .call = 0}, view(data.data(), {4}));
  }
  run.close();
  const Reader reader(run.path());
  EXPECT_EQ(reader.find({.kind = EventKind::Value}).size(), 3u);
  expect_healthy(run.path());
}

TEST(Run, many_small_tensors_fill_several_segments) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.segment_bytes = 1 << 20});
  for (int i = 0; i < 4000; ++i) {
    const auto data = ramp(100 + i % 7, static_cast<float>(i));
    run.record("x", view(data.data(), {static_cast<std::int64_t>(data.size())}));
  }
  run.close();
  EXPECT_GT(count_files(run.writer_path(), ".safetensors"), 2u);
  const Reader reader(run.path());
  const auto ids = reader.find({.name = "x"});
  ASSERT_EQ(ids.size(), 4000u);
  for (int i = 0; i < 4000; i += 37)
    EXPECT_EQ(values_of<float>(reader, ids[i]), ramp(100 + i % 7, static_cast<float>(i)));
  expect_healthy(run.path());
}

TEST(Run, large_tensors_get_segments_of_their_own_size) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.segment_bytes = 1 << 20});
  std::vector<std::vector<float>> tensors;
  for (int i = 0; i < 6; ++i) tensors.push_back(ramp(300'000 + 1000 * i, static_cast<float>(i)));
  for (int i = 0; i < 6; ++i) {
    const auto size = static_cast<std::int64_t>(tensors[i].size());
    run.record("plain", view(tensors[i].data(), {size}));
    const std::vector<std::int64_t> shape{1000, size / 1000}, strides{1, 1000};
    run.record("strided", {tensors[i].data(), DType::F32, shape, strides});
  }
  run.close();
  const Reader reader(run.path());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "plain", .call = i})), tensors[i]);
    const auto strided = values_of<float>(reader, only(reader, {.name = "strided", .call = i}));
    EXPECT_EQ(strided[1], tensors[i][1000]);
    EXPECT_EQ(strided.back(), tensors[i].back());
  }
  expect_healthy(run.path());
}

TEST(Run, names_are_made_unique_or_joined) {
  ScratchFolder scratch;
  Recorder first(scratch.path(), {.name = "exp"});
  Recorder second(scratch.path(), {.name = "exp"});
  EXPECT_EQ(first.path().filename(), "exp");
  EXPECT_EQ(second.path().filename(), "exp_2");
  Recorder rank1(scratch.path(), {.name = "exp", .rank = 1, .world_size = 2});
  EXPECT_EQ(rank1.path(), first.path());
  EXPECT_EQ(rank1.writer_path().filename(), "rank-1");
  Recorder again(scratch.path(), {.name = "exp", .join = true});
  EXPECT_EQ(again.writer_path().filename(), "rank-0.pid-" + std::to_string(::getpid()));
  Recorder once_more(scratch.path(), {.name = "exp", .join = true});
  EXPECT_EQ(once_more.writer_path().filename(), "rank-0.pid-" + std::to_string(::getpid()) + ".2");
  once_more.record("x", 1.0);
  rank1.record("x", 2.0);
  EXPECT_EQ(Reader(first.path()).writers().size(), 4u);
  EXPECT_EQ(Reader(first.path()).find({.name = "x"}).size(), 2u);
  EXPECT_THROW(Recorder(scratch.path(), {.name = "../x"}), Error);
}

TEST(Run, a_budget_keeps_the_first) {
  ScratchFolder scratch;
  std::vector<std::string> warnings;
  Recorder run(scratch.path(),
               {.max_bytes = 1 << 20, .on_warning = [&](const std::string& w) { warnings.push_back(w); }});
  for (int i = 0; i < 100; ++i) {
    const auto data = ramp(10'000, static_cast<float>(i));
    EXPECT_TRUE(run.record("x", view(data.data(), {10'000})).kept);
  }
  run.close();
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_LE(folder_bytes(run.path()), (1u << 20) + (100u << 10));
  const Reader reader(run.path());
  const auto ids = reader.find({.name = "x"});
  ASSERT_EQ(ids.size(), 100u);
  EXPECT_EQ(values_of<float>(reader, ids[10])[0], 10);
  EXPECT_FALSE(std::get<TensorRecord>(reader.event(ids[99]).value).blob.has_value());
  EXPECT_EQ(std::get<TensorRecord>(reader.event(ids[99]).value).stats.min, 99);
  EXPECT_EQ(reader.find({.name = "budget", .kind = EventKind::Note}).size(), 1u);
  expect_healthy(run.path());
}

TEST(Run, a_tensor_that_does_not_fit_leaves_the_budget_to_the_others) {
  ScratchFolder scratch;
  std::vector<std::string> warnings;
  Recorder run(scratch.path(),
               {.max_bytes = 1 << 20, .on_warning = [&](const std::string& w) { warnings.push_back(w); }});
  const auto huge = ramp(1 << 20), tiny = ramp(10, 3), middle = ramp(100'000, 5);
  run.record("huge", view(huge.data(), {1 << 20}));
  run.record("tiny", view(tiny.data(), {10}));
  run.record("middle", view(middle.data(), {100'000}));
  run.record("huge", view(huge.data(), {1 << 20}));
  run.record("tiny", view(tiny.data(), {10}));
  run.close();
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_LE(folder_bytes(run.path()), 1u << 20);
  const Reader reader(run.path());
  for (const auto id : reader.find({.name = "huge"})) {
    const auto event = reader.event(id);
    EXPECT_FALSE(std::get<TensorRecord>(event.value).blob.has_value());
    EXPECT_EQ(std::get<TensorRecord>(event.value).stats.max, (1 << 20) - 1);
  }
  for (const auto id : reader.find({.name = "tiny"})) EXPECT_EQ(values_of<float>(reader, id), tiny);
  EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "middle"})), middle);
  EXPECT_EQ(reader.find({.name = "budget", .kind = EventKind::Note}).size(), 1u);
  EXPECT_TRUE(verify(run.path()).empty());
}

TEST(Run, segments_of_any_size_that_can_be_asked_for) {
  ScratchFolder scratch;
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    Recorder run(scratch.path(), {.segment_bytes = bytes});
    const auto data = ramp(30'000);
    EXPECT_TRUE(run.record("x", view(data.data(), {30'000})).kept);
    EXPECT_TRUE(run.record("y", view(data.data(), {10})).kept);
    EXPECT_TRUE(run.record("z", view(data.data() + 1, {29'999})).kept);
    run.close();
    EXPECT_TRUE(verify(run.path()).empty());
    expect_healthy(run.path());
  }
}

TEST(Run, a_ring_keeps_the_last_within_its_budget) {
  ScratchFolder scratch;
  constexpr std::uint64_t kBudget = 8 << 20;
  Recorder run(scratch.path(), {.max_bytes = kBudget, .keep = Keep::Last});
  const auto constant = ramp(5000, 0.5f);
  constexpr int kCount = 3000;
  for (int i = 0; i < kCount; ++i) {
    run.step(i);
    const auto data = ramp(i % 10 == 0 ? 50'000 : 1000, static_cast<float>(i));
    run.record("x", view(data.data(), {static_cast<std::int64_t>(data.size())}));
    run.record("constant", view(constant.data(), {5000}));
    for (int j = 0; j < 10; ++j) run.record("n", static_cast<double>(j));
    if (i % 500 == 0) {
      EXPECT_LE(folder_bytes(run.path()), kBudget + (5u << 20));  // space reserved ahead
    }
  }
  run.close();
  EXPECT_LE(folder_bytes(run.path()), kBudget);
  EXPECT_GE(folder_bytes(run.path()), kBudget / 3);
  const Reader reader(run.path());
  for (const auto& problem : reader.problems()) ADD_FAILURE() << problem.file << problem.reason;
  for (int i = kCount - 20; i < kCount; ++i) {
    EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "x", .step = i}))[0], static_cast<float>(i));
    EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "constant", .step = i})), constant);
  }
  EXPECT_TRUE(reader.find({.name = "x", .step = 0}).empty());
  expect_healthy(run.path(), true);
}

TEST(Run, a_ring_of_numbers_rotates_its_journal) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.max_bytes = 2 << 20, .keep = Keep::Last});
  for (int i = 0; i < 40'000; ++i) run.record("n", static_cast<double>(i));
  run.close();
  EXPECT_LE(folder_bytes(run.path()), 2u << 20);
  EXPECT_GT(count_files(run.writer_path(), ".jsonl"), 4u);
  const Reader reader(run.path());
  EXPECT_TRUE(reader.problems().empty());
  const auto ids = reader.find({.name = "n"});
  ASSERT_GT(ids.size(), 4000u);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(std::get<double>(reader.event(ids[ids.size() - 1 - i]).value), 39'999.0 - static_cast<double>(i));
  }
}

TEST(Run, durable_runs_sync_and_read_back) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.durability = Durability::Disk});
  const auto data = ramp(100'000);
  run.record("x", view(data.data(), {100'000}));
  run.step();
  run.flush();
  run.close();
  EXPECT_EQ(values_of<float>(Reader(run.path()), 0), data);
}

TEST(Run, a_bad_tensor_is_dropped_and_said) {
  ScratchFolder scratch;
  std::vector<std::string> warnings;
  Recorder run(scratch.path(), {.on_warning = [&](const std::string& w) { warnings.push_back(w); }});
  const std::vector<std::int64_t> shape{3};
  EXPECT_FALSE(run.record("x", {nullptr, DType::F32, shape, {}}).kept);
  EXPECT_FALSE(run.record("x", {nullptr, DType::F32, shape, {}}).kept);
  EXPECT_TRUE(run.record("x", 1.0).kept);
  run.close();
  EXPECT_EQ(run.dropped(), 2u);
  EXPECT_EQ(warnings.size(), 1u);
  const Reader reader(run.path());
  std::int64_t total = 0;
  for (const auto id : reader.find({.kind = EventKind::Dropped}))
    total += std::get<std::int64_t>(reader.event(id).value);
  EXPECT_EQ(total, 2);

  Recorder strict(scratch.path(), {.strict = true});
  EXPECT_THROW(strict.record("x", {nullptr, DType::F32, shape, {}}), Error);
}

}  // namespace
}  // namespace tenscope
