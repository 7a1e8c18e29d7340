#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tenscope/dtype.hpp"
#include "tenscope/summary.hpp"

namespace tenscope {

enum class EventKind : std::uint8_t { Value, Enter, Exit, Change, Step, Note, Dropped };

std::string_view to_string(EventKind kind) noexcept;  // "value", "enter", ...
std::optional<EventKind> parse_event_kind(std::string_view name) noexcept;

// What a probe says of an event, besides its value. All text is borrowed for the duration of the call.
struct EventInfo {
  EventKind kind = EventKind::Value;
  std::string_view name;
  std::int64_t step = -1;  // -1: the run's current step
  std::int64_t call = -1;  // -1: counted by the run, per name and step
  std::string_view site;   // "file.py:12"
  std::string_view scope;  // the module's path or the function it happened in
  std::string_view io;     // input, output, grad_output, grad_input, loss, grad, param, buffer, local; or empty
  std::string_view phase;  // init, forward, backward, optimizer
  std::string_view root;   // label of the outermost module: class and order, "GPT#0"
  std::string_view cls;    // class of the module, or qualified name of the function
  std::string_view task;   // asyncio task, where there is one
  std::string_view meta;   // more, as the text of one JSON object; the probe's own affair
  std::string_view file;   // a file of the run folder that holds just this tensor; then recorded with Values::Stats
};

// Where a tensor's bytes lie: a segment of the writer that recorded it, a byte offset from the file's start, a size.
struct BlobRef {
  std::int64_t segment = -1;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

// A tensor as an event tells of it.
struct TensorRecord {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::string device;
  Fingerprint fingerprint;
  Stats stats;
  std::optional<BlobRef> blob;  // absent where only statistics were kept, or the bytes lie in `file`
  std::string file;             // a tensor file of the run folder (.pt, .npy) that holds it; empty: none

  bool has_bytes() const noexcept { return blob.has_value() || !file.empty(); }
};

struct BigInt {  // an integer beyond 64 bits, in decimal
  std::string digits;
};

// A number or text inline, a tensor, or nothing (monostate: the event has no value; nullptr: the value None).
using EventValue =
    std::variant<std::monostate, std::nullptr_t, bool, std::int64_t, double, BigInt, std::string, TensorRecord>;

// One event as read back.
struct Event {
  std::uint64_t seq = 0;     // per writer, from 0, without gaps
  std::int64_t time_ns = 0;  // since the epoch
  std::uint64_t thread = 0;  // the operating system's thread id
  EventKind kind = EventKind::Value;
  std::string name;
  std::int64_t step = 0;
  std::int64_t call = 0;
  std::string site, scope, io, phase, root, cls, task, meta;
  EventValue value;
};

}  // namespace tenscope
