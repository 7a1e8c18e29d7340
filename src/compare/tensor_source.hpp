#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compare/timeline.hpp"
#include "store/recorded_part.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// Where the tensors of a run's items come from: what one process recorded, or what the parts of several make together.
class TensorSource {
 public:
  TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;
  virtual ~TensorSource() = default;

  virtual TensorRecord record(const Item& item) const = 0;
  virtual TensorData data(const Item& item) const = 0;  // throws as Reader::tensor does
  virtual std::string meta(const Item& item) const = 0;
  virtual std::optional<Sketch> sketch(const Item& item) const = 0;
  virtual std::uint64_t part_id(const Item& item) const = 0;  // of the part that the sketch is of; 0: the whole
};

// The tensors as they were recorded. The reader must outlive it.
class ReaderSource : public TensorSource {
 public:
  explicit ReaderSource(const Reader& reader) : reader_(reader) {}

  TensorRecord record(const Item& item) const override {
    return std::get<TensorRecord>(reader_.event(item.event).value);
  }
  TensorData data(const Item& item) const override { return reader_.tensor(item.event); }
  std::string meta(const Item& item) const override { return reader_.event(item.event).meta; }
  std::optional<Sketch> sketch(const Item& item) const override { return reader_.sketch(item.event); }
  std::uint64_t part_id(const Item& item) const override { return store::part_id(reader_, item.event); }

 private:
  const Reader& reader_;
};

}  // namespace tenscope::compare
