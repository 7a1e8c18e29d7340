// libFuzzer: arbitrary bytes as a journal. First as they are, which tests the way through damage; then each line by
// itself and with a right checksum, which tests the parser behind it, that a hostile file reaches.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "store/event_parser.hpp"
#include "store/journal_reader.hpp"
#include "store/segment_header.hpp"
#include "tenscope/error.hpp"

using namespace tenscope;
using namespace tenscope::store;

namespace {

void read_as_journal(std::string_view bytes) {
  static const int fd = ::memfd_create("journal", 0);
  if (::ftruncate(fd, 0) != 0) std::abort();
  if (::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  const std::filesystem::path path = "/proc/self/fd/" + std::to_string(fd);
  const ReadFile file(path);
  std::vector<Problem> problems;
  JournalReader reader(file, path, problems);
  std::uint64_t end = 0;
  for (LineBatch batch; reader.next(batch);) {
    for (const LineRef& line : batch.lines) {
      const std::uint64_t begin = batch.offset + line.begin;
      if (begin < end || !has_right_sum(batch.text.substr(line.begin, line.size))) std::abort();
      end = begin + line.size + 1;
    }
  }
  if (end > bytes.size() || reader.content_end() < end) std::abort();
}

void parse_lines(std::string_view bytes) {
  EventParser parser;
  while (!bytes.empty()) {
    const std::size_t length = std::min(bytes.find('\n'), bytes.size());
    std::string line = sealed_line(bytes.substr(0, length));
    bytes.remove_prefix(std::min(length + 1, bytes.size()));
    const std::size_t size = line.size() - 1;
    line.resize(size + simdjson::SIMDJSON_PADDING);
    EventHead head;
    try {
      parser.parse_head({line.data(), size}, head);
      const Event event = parser.parse({line.data(), size});
      if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) stored_layout(*tensor);
    } catch (const Error&) {
      // A line that is no event.
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_as_journal(bytes);
  parse_lines(bytes);
  try {
    read_segment_header(std::as_bytes(std::span(data, size)));
  } catch (const Error&) {
    // No segment.
  }
  return 0;
}
