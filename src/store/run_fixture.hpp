#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/summarize.hpp"
#include "store/journal_reader.hpp"
#include "store/run_folder.hpp"

namespace tenscope::store {

// Tests only: a run folder written by hand, as docs/format.md says, and independent of the recorder.
class RunFixture {
 public:
  explicit RunFixture(
      std::string_view run_json = R"({"tenscope_format":1,"started_ns":1700000000000000000,"command":[]})") {
    std::string name = (fs::temp_directory_path() / "tenscope-fixture-XXXXXX").string();
    base_ = ::mkdtemp(name.data());
    fs::create_directories(writer());
    write(path() / "run.json", sealed_line(run_json.substr(0, run_json.size() - 1)));
    write(journal(), "");
  }
  ~RunFixture() { fs::remove_all(base_); }

  const fs::path& base() const { return base_; }
  fs::path path() const { return base_ / "run"; }
  fs::path writer() const { return path() / "rank-0"; }
  fs::path journal() const { return writer() / "journal.jsonl"; }

  static void write(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }
  static void append(const fs::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary | std::ios::app) << text;
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // A line with the members given, without the brackets: R"("kind":"value","name":"x")".
  std::string line(std::string_view members) {
    const std::uint64_t seq = seq_++;
    return sealed_line(fmt::format(R"({{"seq":{},"t":{},"th":1,{})", seq, 1700000000000000000 + seq, members));
  }
  void add(std::string_view members) { append(journal(), line(members)); }
  void close() { add(R"("kind":"note","name":"closed","step":0)"); }

  // Appends a tensor to open segment 0 and tells of it in the journal.
  template <class T>
  void add_tensor(std::string_view name, std::int64_t step, const std::vector<T>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    const fs::path segment = segment_path(writer(), 0, true);
    if (!fs::exists(segment)) {
      std::string start(kHeader, '\0');
      start[1] = static_cast<char>((kHeader - 8) >> 8);
      start[0] = static_cast<char>((kHeader - 8) & 255);
      write(segment, start);
    }
    std::uint64_t offset = fs::file_size(segment);
    if (offset % alignof(T) != 0) append(segment, std::string(alignof(T) - offset % alignof(T), '\0'));
    offset = fs::file_size(segment);
    append(segment, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
    add_tensor_line<T>(name, step, values, fmt::format("[0,{},{}]", offset, count * sizeof(T)));
  }

  template <class T>
  void add_tensor_line(std::string_view name, std::int64_t step, const std::vector<T>& values, std::string_view at) {
    const auto count = static_cast<std::int64_t>(values.size());
    const Fingerprint fingerprint = kernels::fingerprint(TensorView{values.data(), dtype_of<T>::value, {&count, 1}});
    add(fmt::format(R"("kind":"value","name":"{}","step":{},"call":0,"tensor":{{"dtype":"{}","shape":[{}],"fp":"{}",)"
                    R"("stats":{{"min":0,"max":1}},"at":{}}})",
                    name, step, to_string(dtype_of<T>::value), count, fingerprint.hex(), at));
  }

  static constexpr std::size_t kHeader = 4096;

 private:
  fs::path base_;
  std::uint64_t seq_ = 0;
};

}  // namespace tenscope::store
