#include "store/fetch.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "store/scratch_folder.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"

namespace tenscope::store {
namespace {

namespace fs = std::filesystem;

// A run that lies in one folder, and a folder with files of the same size that hold nothing yet.
class Elsewhere {
 public:
  Elsewhere() {
    std::vector<float> values(1024);
    Run run(dir_.path() / "there", {.name = "run"});
    for (int i = 0; i < 3; ++i) {
      std::iota(values.begin(), values.end(), static_cast<float>(i));
      run.record("x" + std::to_string(i), view(values.data(), {1024}));
    }
    run.close();
    fs::copy(there(), here(), fs::copy_options::recursive);
    for (const char* name : {"journal.jsonl", "000000.safetensors"}) {
      const fs::path file = here() / "rank-0" / name;
      const auto size = fs::file_size(file);
      std::ofstream(file, std::ios::trunc).close();
      fs::resize_file(file, size);
    }
  }

  fs::path here() const { return dir_.path() / "here"; }
  fs::path there() const { return dir_.path() / "there" / "run"; }

  void bring(const fs::path& file, std::uint64_t offset, std::uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    asked_.emplace_back(file.filename(), size_bytes);
    std::string bytes(size_bytes, '\0');
    std::ifstream source(there() / fs::relative(file, here()), std::ios::binary);
    source.seekg(static_cast<std::streamoff>(offset));
    source.read(bytes.data(), static_cast<std::streamsize>(size_bytes));
    std::fstream target(file, std::ios::binary | std::ios::in | std::ios::out);
    target.seekp(static_cast<std::streamoff>(offset));
    target.write(bytes.data(), static_cast<std::streamsize>(size_bytes));
  }
  Fetch fetch() {
    return [this](const fs::path& file, std::uint64_t offset, std::uint64_t size) { bring(file, offset, size); };
  }
  const std::vector<std::pair<fs::path, std::uint64_t>>& asked() const { return asked_; }

 private:
  ScratchFolder dir_;
  std::mutex mutex_;
  std::vector<std::pair<fs::path, std::uint64_t>> asked_;
};

TEST(Fetch, journals_come_first_and_then_what_is_looked_at) {
  Elsewhere elsewhere;
  const FetchScope scope(elsewhere.here(), elsewhere.fetch());
  const Reader reader(elsewhere.here());
  EXPECT_TRUE(reader.problems().empty());
  ASSERT_EQ(elsewhere.asked().size(), 1u);
  EXPECT_EQ(elsewhere.asked()[0].first, "journal.jsonl");
  const TensorData data = reader.tensor(reader.find({.name = "x1"}).at(0));
  EXPECT_EQ(static_cast<const float*>(data.view.data)[1023], 1024.0F);
  ASSERT_EQ(elsewhere.asked().size(), 2u);
  EXPECT_EQ(elsewhere.asked()[1], std::pair(fs::path("000000.safetensors"), std::uint64_t{4096}));
}

TEST(Fetch, a_reader_keeps_it_and_a_later_one_does_not_have_it) {
  Elsewhere elsewhere;
  auto scope = std::make_unique<FetchScope>(elsewhere.here() / ".", elsewhere.fetch());
  const Reader reader(elsewhere.here());
  scope.reset();
  EXPECT_NO_THROW(reader.tensor(reader.find({.name = "x2"}).at(0)));
  const Reader later(elsewhere.here());
  EXPECT_THROW(later.tensor(later.find({.name = "x0"}).at(0)), Error);  // nobody has fetched it
}

TEST(Fetch, verify_fetches_everything) {
  Elsewhere elsewhere;
  const FetchScope scope(elsewhere.here().parent_path(), elsewhere.fetch());
  EXPECT_TRUE(verify(elsewhere.here()).empty());
}

TEST(Fetch, other_folders_are_left_alone) {
  Elsewhere elsewhere;
  const FetchScope scope(elsewhere.here().string() + "-not", [](const auto&, auto, auto) { throw Error({}, "asked"); });
  EXPECT_NO_THROW(Reader(elsewhere.there()));
  EXPECT_FALSE(Fetcher(elsewhere.there()).is_set());
}

TEST(Fetch, what_goes_wrong_is_an_error_with_the_path_and_the_reason) {
  Elsewhere elsewhere;
  const auto reason_of = [&](const Fetch& fetch, auto action) {
    const FetchScope scope(elsewhere.here(), fetch);
    try {
      action();
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + " " + error.what();
    }
    return std::string();
  };
  const Fetch broken = [](const auto&, auto, auto) { throw std::runtime_error("the line is cut"); };
  const std::string reason = reason_of(broken, [&] { Reader(elsewhere.here()); });
  EXPECT_TRUE(reason.starts_with("Io ")) << reason;
  EXPECT_NE(reason.find("the line is cut"), reason.npos) << reason;
  EXPECT_TRUE(reason.ends_with("journal.jsonl")) << reason;
  const Fetch half = [&](const fs::path& file, std::uint64_t offset, std::uint64_t size) {
    if (file.extension() == ".safetensors") throw Error(ErrorCode::NotFound, "it is gone");
    elsewhere.bring(file, offset, size);
  };
  EXPECT_EQ(reason_of(half, [&] { verify(elsewhere.here()); }), "NotFound it is gone");
}

TEST(Fetch, several_threads) {
  Elsewhere elsewhere;
  const FetchScope scope(elsewhere.here(), elsewhere.fetch());
  const Reader reader(elsewhere.here());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (const char* name : {"x0", "x1", "x2"}) reader.tensor(reader.find({.name = name}).at(0));
      const FetchScope other("/nowhere", elsewhere.fetch());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(elsewhere.asked().size(), 4u);
}

}  // namespace
}  // namespace tenscope::store
