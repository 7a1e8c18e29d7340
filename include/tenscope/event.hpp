#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "tenscope/dtype.hpp"
#include "tenscope/shard.hpp"
#include "tenscope/sketch.hpp"
#include "tenscope/summary.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

enum class EventKind : std::uint8_t { Value, Enter, Exit, Change, Step, Note, Dropped };

std::string_view to_string(EventKind kind) noexcept;  // "value", "enter", ...
std::optional<EventKind> parse_event_kind(std::string_view name) noexcept;

// What a value is to the call or module it belongs to. Other: a word that this version does not know.
enum class Io : std::uint8_t {
  None,
  Input,
  Output,
  GradOutput,
  GradInput,
  Loss,
  Grad,
  Param,
  Buffer,
  Local,
  Op,
  Oracle,
  Other
};
enum class Phase : std::uint8_t { None, Init, Forward, Backward, Optimizer, Other };

std::string_view to_string(Io io) noexcept;  // "", "input", ..., "oracle", "other"
std::string_view to_string(Phase phase) noexcept;
Io parse_io(std::string_view word) noexcept;  // Other for an unknown word
Phase parse_phase(std::string_view word) noexcept;

// Names of notes (events of kind Note) that readers know; docs/format.md and docs/trace.md say what stands in them.
inline constexpr std::string_view kClosedNote = "closed";        // the last event of a journal closed in order
inline constexpr std::string_view kRepairedNote = "repaired";    // the last event of one that repair() closed
inline constexpr std::string_view kBudgetNote = "budget";        // RunOptions::max_bytes is used up
inline constexpr std::string_view kExceptionNote = "exception";  // the program ended by an exception
inline constexpr std::string_view kSignalNote = "signal";        // the program was ended by a signal
inline constexpr std::string_view kExitNote = "exit";            // the program ended with an exit code other than 0
inline constexpr std::string_view kNotSeenNote = "not_seen";     // something could not be observed
inline constexpr std::string_view kLeftOutNote = "left_out";     // a limit cut something off
inline constexpr std::string_view kMatchedNothingNote = "matched_nothing";  // a selector fits nothing
inline constexpr std::string_view kByPartsNote = "by_parts";  // a tensor without plain bytes, recorded by its parts
inline constexpr std::string_view kRecomputedNote = "recomputed";         // an activation checkpoint's second forward
inline constexpr std::string_view kShapesOnlyNote = "shapes_only";        // a call made to learn shapes, not recorded
inline constexpr std::string_view kPipelineStageNote = "pipeline_stage";  // which stage of a pipeline a module is
inline constexpr std::string_view kOutOfSyncNote = "out_of_sync";         // tensors in which the ranks differ
inline constexpr std::string_view kSourceNote = "source";    // a source file whose text is kept, or why it is not
inline constexpr std::string_view kAgainstNote = "against";  // compared while it was recorded: what agrees has no bytes
inline constexpr std::string_view kStoppedNote = "stopped";  // ended on purpose, since it differs from its reference
// Settings in force (phase init).
inline constexpr std::array<std::string_view, 8> kSettingNotes{"seeds",   "determinism", "precision", "backends",
                                                               "threads", "versions",    "optimizer", "layout"};

// Why events were dropped (the name of an event of kind Dropped), where the user set that limit.
inline constexpr std::string_view kWatchLimit = "watch: max_changes reached";

// Names of tensors that follow from another's: a parameter's gradient "fc.weight.grad", and an input as the call that
// changed it in place left it, "fc.input.0.after".
inline constexpr std::string_view kGradientSuffix = ".grad";
inline constexpr std::string_view kChangedInputSuffix = ".after";
inline constexpr std::string_view kInputPrefix = "input.";

// "fc.weight" of "fc.weight.grad"; another name as it is.
std::string_view parameter_of_gradient(std::string_view name) noexcept;
// "fc.input.0" of "fc.input.0.after"; another name as it is.
std::string_view input_of_changed_input(std::string_view name) noexcept;
// Whether `name`, recorded in the module `scope`, is that of an input changed in place: "fc.input.0.after" in "fc".
bool is_changed_input(std::string_view name, std::string_view scope, Io io) noexcept;
// The name without the scope before it: "input.0" of "fc.input.0" in "fc". Another name as it is.
std::string_view name_in_scope(std::string_view name, std::string_view scope) noexcept;

// An Io or a Phase, or any other word that a program has for it: `.io = Io::Input`, `.io = "router_logits"`.
template <class Enum, Enum (*kParse)(std::string_view) noexcept>
class Word {
 public:
  constexpr Word() noexcept = default;
  constexpr Word(Enum value) noexcept : value_(value) {}                       // NOLINT: implicit
  Word(std::string_view word) noexcept : value_(kParse(word)), word_(word) {}  // NOLINT: implicit
  Word(const char* word) noexcept : Word(std::string_view(word)) {}            // NOLINT: implicit
  constexpr operator Enum() const noexcept { return value_; }                  // NOLINT: implicit
  std::string_view text() const noexcept { return value_ == Enum::Other ? word_ : to_string(value_); }

 private:
  Enum value_ = Enum::None;
  std::string_view word_;
};
using IoWord = Word<Io, parse_io>;
using PhaseWord = Word<Phase, parse_phase>;

// What a probe says of an event, besides its value. All text is borrowed for the duration of the call.
struct EventInfo {
  EventKind kind = EventKind::Value;
  std::string_view name;
  std::int64_t step = -1;  // -1: the run's current step
  std::int64_t call = -1;  // -1: counted by the run, per name and step
  std::string_view site;   // "file.py:12"
  std::string_view scope;  // the module's path or the function it happened in
  IoWord io;
  PhaseWord phase;
  std::string_view root;                 // label of the outermost module: class and order, "GPT#0"
  std::string_view cls;                  // class of the module, or qualified name of the function
  std::string_view task;                 // asyncio task, where there is one
  std::string_view meta;                 // more, as the text of one JSON object; the probe's own affair
  std::vector<std::string_view> inputs;  // names of the tensors it was made of: the member "inputs" of its meta
  std::string_view file;  // a file of the run folder that holds just this tensor; then recorded with Values::Stats
  const Shard* shard = nullptr;  // which part of a tensor this is, where ranks have a part each: the member "shard"
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
  // Null where there is none, or where it is that of another event of the same writer, whose seq is `sketch_of`
  // (Reader::sketch finds it).
  std::shared_ptr<const Sketch> sketch;
  std::optional<std::uint64_t> sketch_of;
  std::optional<BlobRef> blob;  // absent where only statistics were kept, or the bytes lie in `file`
  std::string file;             // a tensor file of the run folder (.pt, .npy) that holds it; empty: none
  bool is_cut = false;          // its bytes were left out because RunOptions::max_bytes was used up

  bool has_bytes() const noexcept { return blob.has_value() || !file.empty(); }
};

struct BigInt {  // an integer beyond 64 bits, in decimal
  std::string digits;
};

// A number or text inline, a tensor, or nothing (monostate: the event has no value; nullptr: the value None).
using EventValue =
    std::variant<std::monostate, std::nullptr_t, bool, std::int64_t, double, BigInt, std::string, TensorRecord>;

template <class Number>
EventValue number_value(Number value) {
  if constexpr (std::is_same_v<Number, bool>) {
    return EventValue(value);
  } else if constexpr (std::is_floating_point_v<Number>) {
    return EventValue(static_cast<double>(value));
  } else {
    if constexpr (std::is_unsigned_v<Number> && sizeof(Number) == sizeof(std::int64_t)) {
      if (value > std::numeric_limits<std::int64_t>::max()) return EventValue(BigInt{std::to_string(value)});
    }
    return EventValue(static_cast<std::int64_t>(value));
  }
}

// One event as read back.
struct Event {
  std::uint64_t seq = 0;     // per writer, from 0, without gaps
  std::int64_t time_ns = 0;  // since the epoch
  std::uint64_t thread = 0;  // the operating system's thread id
  EventKind kind = EventKind::Value;
  std::string name;
  std::int64_t step = 0;
  std::int64_t call = 0;
  Io io = Io::None;
  Phase phase = Phase::None;
  std::string site, scope, root, cls, task, meta;
  std::string other_io, other_phase;  // the words of Io::Other and Phase::Other, as the journal has them
  EventValue value;

  std::string_view io_word() const noexcept { return io == Io::Other ? other_io : to_string(io); }
  std::string_view phase_word() const noexcept { return phase == Phase::Other ? other_phase : to_string(phase); }
};

}  // namespace tenscope
#pragma GCC visibility pop
