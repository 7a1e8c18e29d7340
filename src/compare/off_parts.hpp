#pragma once

#include <cstddef>
#include <vector>

#include "compare/logical_match.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// What single processes recorded of a tensor that was put together, and where each element of it lies in the whole.
// What it was made with must outlive it.
class RecordedPieces {
 public:
  // None where elements of the whole are made of several.
  RecordedPieces(const PartLoader& loader, int run, const PartSet& set, const Arrangement& how);

  std::size_t size() const { return pieces_.size(); }
  // The numbers of a whole that each piece should have.
  std::vector<std::vector<double>> cut(const TensorView& whole) const;
  // Which pieces are not what they should be by the whole tensor of the other run, and whether they are what another
  // piece should be. `factor`: by which they are multiplied.
  std::vector<DiffPart> find_off(const TensorView& whole, double factor) const;

 private:
  struct Piece {
    EventId event = 0;
    int rank = 0;
    std::int64_t pass = -1;
    std::vector<std::size_t> places;  // of its elements in the whole
  };

  void place(const PartSet& set, const Arrangement& how);

  const Reader& reader_;
  int run_;
  std::vector<Piece> pieces_;
};

}  // namespace tenscope::compare
