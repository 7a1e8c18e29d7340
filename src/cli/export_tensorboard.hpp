#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::cli {

struct TensorBoardOptions {
  std::string folder;
  std::vector<std::string> statistics{"mean", "std", "l2"};  // of tensors
  bool has_histograms = true;
};

struct TensorBoardExport {
  std::vector<std::string> files;
  std::vector<std::string> scalars, histograms;  // their tags
  std::size_t points = 0;
  std::map<std::string, std::size_t> left_out;  // by reason
};

// Writes what these events tell of as files of TensorBoard, one for each process, into a folder of the run's name below
// the folder; those that lie there under the same names are replaced.
TensorBoardExport export_tensorboard(const Reader& reader, std::span<const EventId> events,
                                     const TensorBoardOptions& options, const Output& output);

}  // namespace tenscope::cli
