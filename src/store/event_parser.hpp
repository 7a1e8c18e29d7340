#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>

#include "tenscope/event.hpp"

namespace tenscope::store {

// The part of an event that a Reader keeps in memory; the rest is read again from the journal when asked for.
struct EventHead {
  std::uint64_t seq = 0;
  EventKind kind = EventKind::Value;
  bool is_tensor = false;
  bool has_nonfinite = false;  // a tensor with NaN or Inf in it
  bool has_file = false;       // a tensor in a file of its own
  bool is_cut = false;         // a tensor whose bytes a budget left out
  std::int64_t segment = -1;   // where a tensor's bytes lie; -1: nowhere
  std::int64_t step = 0;
  std::int64_t call = 0;
  std::string_view name;  // valid until the parser's next line
};

// Reads the lines of journals. Not for several threads at once.
class EventParser {
 public:
  // `line` has SIMDJSON_PADDING readable bytes behind it. Throws Corrupt with the reason alone.
  void parse_head(std::string_view line, EventHead& head);
  Event parse(std::string_view line);

 private:
  simdjson::ondemand::parser parser_;
};

}  // namespace tenscope::store
