#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/event.hpp"
#include "tenscope/span.hpp"
#include "tenscope/tensor_view.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

// Damage: what is there is not what was written. Loss: what should be there is not.
enum class ProblemKind : std::uint8_t { Damage, Loss };

// Damage, a gap or a loss found while reading; reading goes on after it.
struct Problem {
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::string reason;
  ProblemKind kind = ProblemKind::Damage;
};

// What a writer did not keep, by reason. Everything else of the run is there.
struct Loss {
  std::string writer;         // its folder, "rank-0"
  std::uint64_t events = 0;   // that were not recorded, or are no longer there
  std::uint64_t tensors = 0;  // whose event is there, but not the bytes
  std::string reason;         // "no space", "budget", ...
  bool is_limit = false;      // a limit that the user set was reached (max_bytes, watch's max_changes): no trouble
  bool is_exact = true;       // false: the writer crashed, and may have lost more than it had said
};
std::string to_string(const Loss& loss);  // "rank-0: 15 events were lost: no space"

// One folder of a run: who wrote it and how it ended.
struct WriterInfo {
  std::string folder;  // "rank-0", "rank-0.pid-4312"
  int rank = 0;
  bool closed = false;    // its journal was closed in order
  bool repaired = false;  // its writer crashed, and repair() closed the journal
  bool running = false;   // its writer was alive when the Reader was opened
  std::uint64_t event_count = 0;
  std::uint64_t dropped = 0;      // events that it could not record, as far as it could say so
  std::string exception;          // class of the exception, or name of the signal, that ended it; empty: none
  std::string exception_message;  // where it is known

  bool failed() const noexcept { return !exception.empty(); }
};

enum class RunState : std::uint8_t { Empty, Closed, Repaired, Running, Failed, Crashed };

// How a run stands: of all its writers, the one to worry about most. Empty: there is none.
RunState run_state(Span<const WriterInfo> writers) noexcept;
std::string_view to_string(RunState state) noexcept;     // "empty", "closed", ...
std::string state_text(Span<const WriterInfo> writers);  // the same, with the reason: "failed (ValueError)"

// An event's place in a Reader: index into events in the order (writer, seq).
using EventId = std::uint32_t;

// What to look for; unset fields match anything. The name is a glob: * is any run of characters, ? one character.
struct Query {
  std::string name;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> call;
  std::optional<int> rank;
  std::optional<EventKind> kind;
};

// A tensor's bytes, mapped from a segment: valid while the Reader that gave it lives, or while `owner` is held (which
// keeps all mappings of that Reader).
struct TensorData {
  TensorView view;
  std::shared_ptr<const void> owner;
};

// A source file of the program, as a writer of the run met it.
struct SourceFile {
  std::string file;         // as sites have it, "model.py"; the whole path where it lay outside of the working folder
  std::string path;         // where it lay; empty for code that is in no file, such as a notebook's
  std::string fingerprint;  // of its text, 32 hex digits; empty: it was not kept
  std::string left_out;     // why it was not
  std::uint64_t size_bytes = 0;
  std::uint64_t line_count = 0;
  EventId event = 0;  // the note that tells of it
};

struct ReaderOptions {
  bool check_fingerprints = true;  // a tensor's bytes are checked when it is first asked for
  std::vector<int> ranks;          // only what these recorded is read; empty: all
};

// Brings bytes of a file here: when it returns, `size_bytes` bytes from `offset` on can be read from `file`. Throws
// where that fails. Called from several threads at a time.
using Fetch = std::function<void(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size_bytes)>;

// For runs whose bytes lie elsewhere: in `folder` their files have the right size, but are filled only when they are
// read. Readers (and verify) that are opened while this lives call `fetch` before they read a journal or a tensor's
// bytes of a run in `folder`, and keep it for their own life. Thread-safe.
class FetchScope {
 public:
  FetchScope(const std::filesystem::path& folder, Fetch fetch);
  ~FetchScope();
  FetchScope(const FetchScope&) = delete;
  FetchScope& operator=(const FetchScope&) = delete;

 private:
  std::uint64_t id_ = 0;
};

// Reads a finished, a running or a crashed run. Opening reads the journals only; tensors are mapped when asked for.
// Immutable once open, so any number of threads may use it.
class Reader {
 public:
  // A run's folder, or a folder of runs: then the newest run in it. Throws NotFound, Io, Version.
  explicit Reader(const std::filesystem::path& path, ReaderOptions options = {});
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  // The same run as it stands now: for one that is being written. What was read before is not read again.
  Reader reopened() const;

  const std::filesystem::path& path() const noexcept;
  std::string_view run_json() const noexcept;  // the text of run.json
  Span<const WriterInfo> writers() const noexcept;
  Span<const Problem> problems() const noexcept;     // damage, and losses that no limit asked for
  const std::vector<Loss>& losses() const noexcept;  // all of them, also those within a limit that the user set

  std::size_t event_count() const noexcept;
  Event event(EventId id) const;  // the whole event, copied out. Throws Corrupt, Io
  EventKind kind(EventId id) const noexcept;
  std::string_view name(EventId id) const noexcept;
  std::int64_t step(EventId id) const noexcept;
  std::int64_t call(EventId id) const noexcept;
  std::size_t writer_index(EventId id) const noexcept;
  EventId first_event(std::size_t writer) const noexcept;  // its others follow it
  bool is_tensor(EventId id) const noexcept;
  bool has_nonfinite(EventId id) const noexcept;  // a tensor with NaN or Inf in it

  std::vector<EventId> find(const Query& query) const;
  std::vector<std::string> names() const;  // of values and changes, in order of first appearance
  std::vector<std::int64_t> steps(std::string_view name = {}) const;  // ascending

  // The bytes of a tensor event. Throws InvalidArgument (no tensor), NotFound (only statistics were kept, or its
  // segment has been dropped), Corrupt (it lies outside its segment, or its bytes do not have its fingerprint).
  TensorData tensor(EventId id) const;
  // Were the bytes of a tensor event, `record`, kept, and is the file there that holds them?
  bool has_bytes(EventId id, const TensorRecord& record) const;
  // The sketch of a tensor event: as it was recorded, else made from its bytes, as that of the part of the whole that
  // it is. Nothing where neither is there, or where it is no tensor.
  std::optional<Sketch> sketch(EventId id) const;
  // The sources that the run keeps, in the order of the notes, each content of each file once.
  std::vector<SourceFile> sources() const;
  // The text of one of them, by its fingerprint. Throws NotFound, Corrupt, Io.
  std::string source_text(std::string_view fingerprint) const;
  // Gives back the memory of the tensors of a writer that were looked at. Views stay valid: they are read again.
  void release(std::size_t writer) const noexcept;

  // From now on a tensor without bytes has those of one of equal content (fingerprint, dtype and shape) in `lender`,
  // which must outlive this reader. For a run that was recorded against another, and does not keep what agrees with it.
  // Before others use this reader.
  void borrow_from(const Reader& lender);

  struct [[gnu::visibility("hidden")]] Impl;

 private:
  explicit Reader(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// All runs below a folder, oldest first; the folder itself where it is a run.
std::vector<std::filesystem::path> list_runs(const std::filesystem::path& folder);

// Checks every journal line's checksum, every segment's structure and every tensor's fingerprint.
std::vector<Problem> verify(const std::filesystem::path& run);

// Seals what a crash left open: completes open segments, trims journals. Safe to repeat; refuses a run that is being
// written (its writer holds a lock on its journal). Returns what it did, a line each.
std::vector<std::string> repair(const std::filesystem::path& run);

}  // namespace tenscope
#pragma GCC visibility pop
