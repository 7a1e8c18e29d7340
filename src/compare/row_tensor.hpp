#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "compare/row_table.hpp"
#include "compare/shape.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// Which axes of a tensor are its rows.
struct RowAxes {
  std::map<std::size_t, std::vector<std::size_t>> axes;  // by batch; a batch that is not here has no such rows
  Shape rest;                                            // the shape of one row, without axes of size 1
};

// A tensor, or a call, of a run as all of its batches have it.
struct RowTensor {
  struct Piece {
    EventId id = 0;
    Shape shape;
    DType dtype = DType::F64;
    Fingerprint fingerprint;
    bool has_bytes = false;
    bool is_number = false;                // a number by itself,
    std::array<std::byte, 8> number = {};  // in that dtype
  };

  Event event;            // the first of it
  EventId first = 0;      // ... in the run
  std::int64_t call = 0;  // how manieth of its name it is
  std::size_t events = 0;
  std::map<std::size_t, Piece> pieces;  // by batch
  std::vector<RowAxes> ways;            // in which its axes may be rows, the leading ones first; empty: it has none

  // Do all batches have the same bytes?
  bool is_constant() const;
  std::int64_t row_elements(const RowAxes& way) const { return element_count(way.rest); }
};

// In the order of recording, with the ways in which tensors may have the table's rows. Parameters have none.
std::vector<RowTensor> read_row_tensors(const RowTable& table);

// The rows of a tensor, in the order of the places, as bytes in C order. All places must be in batches of the way.
std::vector<std::byte> gather_rows(const RowTable& table, const RowTensor& tensor, const RowAxes& way,
                                   const std::vector<RowPlace>& places);

// The index of element `element` of a row (in C order) in the tensor that holds it, axes of size 1 included.
std::vector<std::int64_t> index_in_batch(const RowTensor& tensor, const RowAxes& way, RowPlace place,
                                         std::int64_t element);
// The same for all of the row: "2, :, 3".
std::string slice_in_batch(const RowTensor& tensor, const RowAxes& way, RowPlace place);

// What no order of the elements within a row changes.
struct RowSum {
  double sum = 0, squares = 0;
};
std::vector<RowSum> row_sums(const RowTable& table, const RowTensor& tensor, const RowAxes& way,
                             const std::vector<RowPlace>& places);
// Do most likely the same numbers stand in both rows, of so many elements? Engines of half precision agree to 1 %.
bool are_alike(const RowSum& a, const RowSum& b, std::int64_t elements, double near = 0.01);

}  // namespace tenscope::compare
