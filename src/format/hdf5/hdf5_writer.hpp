#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tenscope/tensor_view.hpp"

namespace tenscope {

struct Hdf5Options {
  int gzip_level = 0;  // 1 to 9; 0: not compressed
  bool shuffle = false;
};

// Where a row comes from.
struct Hdf5Row {
  std::int64_t step = 0;
  std::int64_t rank = 0;
};

// Writes values by name into an HDF5 file that h5py, MATLAB and others read. Each name is a dataset with one row per
// value, beside it <name>_iterations and <name>_ranks tell the step and the rank of each row. Tensors of different
// sizes are padded with zeros at the ends, and <name>_shapes tells the sizes of each row; those of another
// number of axes or type than the first go to <name>_<axes>d. bfloat16 and float8 become float32, bool and
// complex are stored as h5py does. A slash in a name becomes a colon, as HDF5 takes it for a folder. Throws Io; not
// thread-safe.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const std::filesystem::path& path, Hdf5Options options = {});  // replaces an old file
  ~Hdf5Writer();                                                                     // without close() no file is left
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  void append(std::string_view name, const TensorView& tensor, Hdf5Row row);
  void append(std::string_view name, double value, Hdf5Row row);
  void append(std::string_view name, std::int64_t value, Hdf5Row row);
  void append(std::string_view name, std::string_view text, Hdf5Row row);
  void close();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenscope
