#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/fetch.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "store/writer_account.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {

// Names as small numbers.
class NameTable {
 public:
  NameTable() = default;
  NameTable(const NameTable& other) {
    for (const std::string& name : other.names_) intern(name);
  }
  NameTable& operator=(const NameTable&) = delete;
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;

  std::uint32_t intern(std::string_view name) {
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    names_.emplace_back(name);
    const auto id = static_cast<std::uint32_t>(names_.size() - 1);
    ids_.emplace(names_.back(), id);
    return id;
  }
  std::optional<std::uint32_t> find(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::string& operator[](std::uint32_t id) const { return names_[id]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

// What is kept of an event: what queries ask for, and where its line stands.
struct Row {
  std::uint64_t offset = 0;
  std::int64_t step = 0;
  std::int64_t call = 0;
  std::uint32_t size = 0;
  std::uint32_t name = 0;  // in the name table
  std::uint32_t part = 0;  // which journal file
  EventKind kind = EventKind::Value;
  bool is_tensor = false;
  bool has_nonfinite = false;
};

// A journal file that was read.
struct JournalPart {
  fs::path path;
  std::uint64_t inode = 0;
  ReadFile file;  // open where few are

  // Fills `buffer` from that file, wherever a ring's writer has moved it since. Throws NotFound, Io.
  std::size_t read(std::uint64_t offset, std::span<char> buffer) const;
};

// Where reading the journal of a writer has come to, to go on from there later.
struct JournalPlace {
  bool can_go_on = false;  // false: of a ring, whose parts move, and behind damage everything is read again
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> next_seq;
  WriterAccount account;
};

// All that the journals of one writer say. Rows name its own parts and names.
struct WriterContent {
  WriterInfo info;
  std::vector<JournalPart> parts;
  std::vector<Row> rows;
  NameTable names;
  std::vector<Problem> problems;
  std::vector<Loss> losses;
  JournalPlace end;
  bool goes_on = false;  // rows and names are those behind the place it was read from
};

// Reads the folder of one writer; at most `kept_open` of its files stay open. From `before` on, where that is not null
// and its journal is still the same. Throws only what the fetcher throws.
WriterContent read_writer(const WriterFolder& folder, const Fetcher& fetcher, bool is_ring, std::size_t kept_open,
                          const JournalPlace* before = nullptr);

}  // namespace tenscope::store
