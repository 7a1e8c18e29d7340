#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "arrow/events.hpp"
#include "arrow/stream.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"

// What stands in the batches is held against what Python reads, by pyarrow, in tests/test_arrow.py; here is who owns
// what. AddressSanitizer, under which these tests run too, sees what is released twice or never.
namespace tenscope::arrow {
namespace {

namespace fs = std::filesystem;

class Recorded : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("arrow_test." + std::to_string(::getpid()));
    fs::remove_all(folder_);
    RunOptions options;
    options.name = "run";
    tenscope::Run run(folder_, options);
    const std::vector<float> values{1, 2, std::numeric_limits<float>::quiet_NaN()};
    run.record("x", view(values.data(), {3}));
    run.record("loss", 0.5);
    run.record("note", std::string_view("a text"));
    run.close();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::shared_ptr<const Reader> reader() const { return std::make_shared<const Reader>(folder_ / "run"); }
  std::vector<EventId> all(const Reader& reader) const { return find_events(reader, {}); }

  fs::path folder_;
};

std::size_t column_named(std::string_view name) {
  const auto fields = event_fields();
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].name == name) return i;
  ADD_FAILURE() << "there is no column " << name;
  return 0;
}

TEST_F(Recorded, columns_have_the_values) {
  const auto run = reader();
  EventBatches batches(run, all(*run));
  const auto batch = batches.next();
  ASSERT_TRUE(batch);
  ASSERT_GE(batch->rows, 3u);
  EXPECT_EQ(batch->columns[column_named("name")].text(1), "loss");
  EXPECT_EQ(batch->columns[column_named("type")].text(0), "tensor");
  EXPECT_EQ(std::get<std::vector<double>>(batch->columns[column_named("value")].data())[1], 0.5);
  EXPECT_TRUE(batch->columns[column_named("value")].is_null(0));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(batch->columns[column_named("nan")].data())[0], 1);
  EXPECT_EQ(batch->columns[column_named("text")].text(2), "a text");
  EXPECT_EQ(batch->columns[column_named("shape")].shape(0).front(), 3);
  EXPECT_FALSE(batches.next());
}

TEST_F(Recorded, a_stream_may_be_dropped_at_any_time) {
  for (const int pulled : {0, 1, 2, 3}) {
    const auto run = reader();
    std::weak_ptr<const Reader> held = run;
    ArrowArrayStream stream = event_stream(run, all(*run));
    for (int i = 0; i < pulled; ++i) {
      ArrowArray array{};
      ASSERT_EQ(stream.get_next(&stream, &array), 0);
      EXPECT_EQ(array.release != nullptr, i == 0) << "a run this small has one batch";
      if (array.release != nullptr) array.release(&array);
      EXPECT_EQ(array.release, nullptr);
    }
    EXPECT_EQ(held.use_count(), 2);
    stream.release(&stream);
    EXPECT_EQ(stream.release, nullptr);
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST_F(Recorded, an_array_outlives_its_stream_and_a_child_its_parent) {
  auto run = reader();
  ArrowArrayStream stream = event_stream(run, all(*run));
  ArrowArray array{};
  ASSERT_EQ(stream.get_next(&stream, &array), 0);
  stream.release(&stream);
  run.reset();
  ArrowArray& child = *array.children[column_named("step")];
  ArrowArray moved = child;
  child.release = nullptr;  // which is how a consumer says that it has taken it
  array.release(&array);
  EXPECT_EQ(static_cast<const std::int64_t*>(moved.buffers[1])[0], 0);
  moved.release(&moved);
}

TEST_F(Recorded, layouts_of_texts_may_be_wished) {
  const auto run = reader();
  for (const TextLayout layout : {TextLayout::Plain, TextLayout::Large, TextLayout::Coded}) {
    ArrowSchema wish = event_schema(Layouts(event_fields().size(), layout));
    ArrowArrayStream stream = event_stream(run, all(*run), &wish);
    ArrowSchema given{};
    ArrowArray array{};
    ASSERT_EQ(stream.get_schema(&stream, &given), 0);
    ASSERT_EQ(stream.get_next(&stream, &array), 0);
    const std::size_t name = column_named("name");
    EXPECT_STREQ(given.children[name]->format, wish.children[name]->format);
    EXPECT_EQ(given.children[name]->dictionary != nullptr, layout == TextLayout::Coded);
    EXPECT_EQ(array.children[name]->dictionary != nullptr, layout == TextLayout::Coded);
    EXPECT_EQ(array.children[name]->n_buffers, layout == TextLayout::Coded ? 2 : 3);
    for (int i = 0; i < 2; ++i) {
      ArrowSchema again{};
      ASSERT_EQ(stream.get_schema(&stream, &again), 0);
      again.release(&again);
    }
    given.release(&given);
    wish.release(&wish);
    array.release(&array);
    stream.release(&stream);
  }
}

TEST_F(Recorded, another_table_is_refused) {
  const auto run = reader();
  ArrowSchema wish = event_schema();
  --wish.n_children;
  EXPECT_THROW(event_stream(run, {}, &wish), Error);
  ++wish.n_children;
  const char* const name = wish.children[0]->name;
  wish.children[0]->name = "other";
  EXPECT_THROW(event_stream(run, {}, &wish), Error);
  wish.children[0]->name = name;
  wish.release(&wish);
}

TEST_F(Recorded, an_error_is_told) {
  const auto run = reader();
  ArrowArrayStream stream = event_stream(run, {EventId{1000}});
  ArrowArray array{};
  EXPECT_NE(stream.get_next(&stream, &array), 0);
  EXPECT_NE(std::string(stream.get_last_error(&stream)).find("there is no event 1000"), std::string::npos);
  stream.release(&stream);
}

TEST_F(Recorded, many_rows_come_in_batches_and_in_order) {
  const auto run = reader();
  std::vector<EventId> events;
  constexpr std::size_t kRows = 200'000;
  for (std::size_t i = 0; i < kRows; ++i) events.push_back(static_cast<EventId>(i % 3));
  EventBatches batches(run, events);
  std::size_t rows = 0, count = 0;
  while (const auto batch = batches.next()) {
    ++count;
    for (std::size_t i = 0; i < batch->rows; ++i, ++rows)
      ASSERT_EQ(batch->columns[column_named("name")].text(i), run->name(events[rows]));
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_EQ(count, (kRows + 65535) / 65536);
  EventBatches dropped(run, events);
  EXPECT_TRUE(dropped.next());  // and the others are being made when it goes
}

}  // namespace
}  // namespace tenscope::arrow
