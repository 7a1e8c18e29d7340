#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/row_match.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

struct RowTensorId {
  int side = 0;
  std::size_t index = 0;
};

// Of a tensor of rows, as it is written anew: [rows, ...].
Shape written_shape(const RowMatch& match, RowTensorId id);
DType dtype_of_rows(const RowTensor& tensor, const RowAxes& way);

// What a comparison of rows found, told as the runs themselves have it: steps, calls, ranks and indices.
class RowNames {
 public:
  // `keys` are the names of the keys.
  RowNames(const RowMatch& match, std::vector<std::string> keys);

  // A tensor by its name and call in the run that was written anew.
  std::optional<RowTensorId> find(int side, const std::string& name, std::int64_t call) const;

  void tell(RunDiff& diff) const;

 private:
  struct Element {
    std::size_t row = 0;  // among the rows that were compared
    std::int64_t element = 0;
  };

  void tell(DiffOrigin& origin) const;
  void tell(DiffPlace& place, std::optional<std::size_t> row) const;
  DiffEvent event_of(RowTensorId id, std::optional<std::size_t> row) const;
  std::string differing_rows(RowTensorId a, RowTensorId b) const;

  const RowMatch& match_;
  std::vector<std::string> keys_;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> by_name_[2];
};

}  // namespace tenscope::compare
