#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "viewer/side.hpp"

namespace tenscope::viewer {

using TextId = std::uint32_t;  // 0 is the empty text

// Texts as small numbers.
class Texts {
 public:
  Texts() { id(""); }
  Texts(const Texts& other);
  Texts& operator=(const Texts&) = delete;
  TextId id(std::string_view text);
  const std::string& operator[](TextId id) const { return texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, TextId> ids_;
};

enum class Shown : std::uint8_t { Nothing, Number, Text, Tensor };

// What lists and pictures need of an event.
struct EventRow {
  std::int64_t step = 0;
  std::int64_t call = 0;
  double size = 0;  // of a tensor the largest finite |element|, NaN where there is none; of a number itself
  TextId name = 0, scope = 0, root = 0, cls = 0, shape = 0;
  std::uint32_t bad = 0;  // NaN and infinities
  EventKind kind = EventKind::Value;
  Io io = Io::None;
  Phase phase = Phase::None;
  DType dtype = DType::F32;
  Shown shown = Shown::Nothing;
  bool is_unreadable = false;  // the journal was damaged there since it was opened

  bool is_value() const { return kind == EventKind::Value || kind == EventKind::Change; }
};

// Rows in blocks. Those that are full are shared with every copy, as the catalogs of a run that grows are made of each
// other, and are never written again.
class Rows {
 public:
  Rows() = default;
  Rows(const Rows& other);
  Rows& operator=(const Rows&) = delete;
  Rows& operator=(Rows&&) = default;
  std::size_t size() const { return size_; }
  const EventRow& operator[](std::size_t i) const { return (*blocks_[i / kBlock])[i % kBlock]; }
  void push_back(const EventRow& row);

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 15;
  std::vector<std::shared_ptr<std::vector<EventRow>>> blocks_;
  std::size_t size_ = 0;
};

// The rows of a side, and which events have which name.
class Catalog {
 public:
  using Progress = std::function<void(double done)>;

  // `before` is the catalog of the same run when it was shorter: what it has is not read again.
  Catalog(const Side& side, const Catalog* before, const Progress& progress);

  const Rows& rows() const { return rows_; }
  const EventRow& operator[](EventId id) const { return rows_[id]; }
  const Texts& texts() const { return texts_; }
  const std::string& text(TextId id) const { return texts_[id]; }
  // Names of values in the order of their first appearance, and the events of each.
  const std::vector<TextId>& names() const { return names_; }
  const std::vector<EventId>& events_of(TextId name) const;
  const std::vector<EventId>* find(std::string_view name) const;  // null: there is no value of that name
  const std::vector<std::int64_t>& steps() const { return steps_; }

 private:
  void read(const Side& side, EventId begin, EventId end, const std::function<void(std::size_t)>& progress);
  void index(std::size_t from);  // of the rows from there on

  Texts texts_;
  Rows rows_;
  std::vector<std::size_t> counts_;  // of each writer
  std::vector<TextId> names_;
  std::unordered_map<TextId, std::vector<EventId>> events_;
  std::unordered_map<std::string_view, TextId> ids_;
  std::vector<std::int64_t> steps_;
};

}  // namespace tenscope::viewer
