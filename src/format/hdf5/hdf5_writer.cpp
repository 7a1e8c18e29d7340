#include "format/hdf5/hdf5_writer.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "format/value.hpp"
#include "kernels/element.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

constexpr hsize_t kChunkBytes = 8 << 10;

// An HDF5 handle, closed at its end.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const noexcept { return id_; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

// HDF5's own account of its last error.
std::string last_error() {
  std::string text = "HDF5 failed";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* out) -> herr_t {
        if (depth == 0 && error->desc) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &text);
  return text.substr(0, text.find(", errno"));
}

Handle half_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

Handle bool_type() {
  Handle type(H5Tenum_create(H5T_NATIVE_INT8), H5Tclose);
  for (auto& [name, value] : {std::pair<const char*, std::int8_t>("FALSE", 0), {"TRUE", 1}})
    H5Tenum_insert(type, name, &value);
  return type;
}

Handle complex_type(hid_t part, std::size_t part_bytes) {
  Handle type(H5Tcreate(H5T_COMPOUND, 2 * part_bytes), H5Tclose);
  H5Tinsert(type, "r", 0, part);
  H5Tinsert(type, "i", part_bytes, part);
  return type;
}

Handle text_type() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

Handle type_of(DType dtype) {
  const auto copy = [](hid_t type) { return Handle(H5Tcopy(type), H5Tclose); };
  switch (dtype) {
    case DType::F64:
      return copy(H5T_IEEE_F64LE);
    case DType::F16:
      return half_type();
    case DType::I64:
      return copy(H5T_STD_I64LE);
    case DType::I32:
      return copy(H5T_STD_I32LE);
    case DType::I16:
      return copy(H5T_STD_I16LE);
    case DType::I8:
      return copy(H5T_STD_I8LE);
    case DType::U64:
      return copy(H5T_STD_U64LE);
    case DType::U32:
      return copy(H5T_STD_U32LE);
    case DType::U16:
      return copy(H5T_STD_U16LE);
    case DType::U8:
      return copy(H5T_STD_U8LE);
    case DType::Bool:
      return bool_type();
    case DType::C64:
      return complex_type(H5T_IEEE_F32LE, 4);
    case DType::C128:
      return complex_type(H5T_IEEE_F64LE, 8);
    default:
      return copy(H5T_IEEE_F32LE);
  }
}

DType stored_as(DType dtype) {
  const bool is_narrow = dtype == DType::BF16 || (kind_of(dtype) == DTypeKind::Float && item_size(dtype) == 1);
  return is_narrow ? DType::F32 : dtype;
}

// The elements in C order, as the type they are stored in.
std::vector<std::byte> stored_elements(const TensorView& tensor) {
  std::vector<std::byte> plain(size_bytes(tensor));
  copy_elements(tensor, plain.data());
  if (tensor.dtype == DType::Bool) {
    for (auto& byte : plain) byte = static_cast<std::byte>(byte != std::byte{0});
  }
  if (stored_as(tensor.dtype) == tensor.dtype) return plain;
  std::vector<std::byte> wide;
  kernels::visit_dtype(tensor.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (requires { kernels::to_float(tag); }) {
      wide.resize(plain.size() / sizeof(T) * sizeof(float));
      for (std::size_t i = 0; i < plain.size() / sizeof(T); ++i) {
        const float value = kernels::to_float(kernels::load<T>(plain.data() + i * sizeof(T)));
        std::memcpy(wide.data() + i * sizeof(float), &value, sizeof value);
      }
    }
  });
  return wide;
}

// The name of a dataset: HDF5 takes slashes and dots alone for ways through groups, and the columns beside a dataset
// must keep their names.
std::string dataset_name(std::string_view name) {
  std::string key(name);
  std::ranges::replace(key, '/', ':');
  std::ranges::replace(key, '\0', ':');
  if (key.find_first_not_of('.') == key.npos) key.insert(0, "_");
  for (const std::string_view ending : {"_iterations", "_ranks", "_shapes"})
    if (key.ends_with(ending)) return key + "_";
  return key;
}

}  // namespace

struct Hdf5Writer::Impl {
  struct Dataset {
    Handle type, id;
    std::vector<hsize_t> extent;  // of all axes, the rows first
    std::vector<std::int64_t> steps, ranks, shapes;
    bool is_ragged = false;
  };

  std::filesystem::path path, temporary;
  Hdf5Options options;
  Handle file;
  std::map<std::string, Dataset, std::less<>> datasets;

  template <class T>
  T check(T result) const {
    if (result < 0) throw Error(ErrorCode::Io, fmt::format("cannot write .h5: {}: {}", last_error(), path.string()));
    return result;
  }

  Handle make_dataset(const std::string& name, hid_t type, const std::vector<hsize_t>& extent, std::size_t item) {
    std::vector<hsize_t> chunk(extent);
    hsize_t row_bytes = item;
    for (std::size_t axis = 1; axis < chunk.size(); ++axis)
      row_bytes *= chunk[axis] = std::max<hsize_t>(chunk[axis], 1);
    chunk[0] = std::max<hsize_t>(1, kChunkBytes / row_bytes);
    for (std::size_t axis = 1; row_bytes > (1u << 30) && axis < chunk.size(); ++axis) {  // a chunk must be below 4 GiB
      row_bytes /= chunk[axis];
      chunk[axis] = 1;
    }
    const std::vector<hsize_t> limits(extent.size(), H5S_UNLIMITED);
    Handle space(check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), limits.data())), H5Sclose);
    Handle properties(check(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
    check(H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data()));
    if (options.shuffle && H5Tget_class(type) != H5T_STRING) check(H5Pset_shuffle(properties));
    if (options.gzip_level > 0) check(H5Pset_deflate(properties, static_cast<unsigned>(options.gzip_level)));
    return Handle(check(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT)), H5Dclose);
  }

  // The dataset for values of this type and number of axes: the first of a name has the name itself.
  std::pair<const std::string, Dataset>& dataset(std::string_view name, Handle type, std::size_t axes) {
    const std::string key = dataset_name(name);
    std::string candidate = key;
    for (int attempt = 1;; ++attempt) {
      const auto [place, is_new] = datasets.try_emplace(candidate);
      Dataset& known = place->second;
      if (is_new) {
        known.type = std::move(type);
        known.extent.assign(axes + 1, 0);
        return *place;
      }
      if (known.extent.size() == axes + 1 && H5Tequal(known.type, type) > 0) return *place;
      candidate = attempt == 1 ? fmt::format("{}_{}d", key, axes) : fmt::format("{}_{}d_{}", key, axes, attempt);
    }
  }

  void append(std::string_view row_name, Handle type, std::size_t item, std::span<const std::int64_t> shape,
              const void* data, Hdf5Row row) {
    auto& [name, target] = dataset(row_name, std::move(type), shape.size());
    std::vector<hsize_t> start(target.extent.size(), 0), count(1, 1);
    for (const auto size : shape) count.push_back(static_cast<hsize_t>(size));
    const bool is_first = target.extent[0] == 0;
    for (std::size_t axis = 1; axis < count.size(); ++axis) {
      target.is_ragged |= !is_first && count[axis] != target.extent[axis];
      target.extent[axis] = std::max(target.extent[axis], count[axis]);
    }
    start[0] = target.extent[0]++;
    if (is_first) {
      target.id = make_dataset(name, target.type, target.extent, item);
    } else {
      check(H5Dset_extent(target.id, target.extent.data()));
    }
    target.steps.push_back(row.step);
    target.ranks.push_back(row.rank);
    target.shapes.insert(target.shapes.end(), shape.begin(), shape.end());
    if (std::ranges::find(count, hsize_t{0}) != count.end()) return;
    Handle in_file(check(H5Dget_space(target.id)), H5Sclose);
    check(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
    Handle in_memory(check(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr)), H5Sclose);
    check(H5Dwrite(target.id, target.type, in_memory, in_file, H5P_DEFAULT, data));
  }

  void write_column(const std::string& name, const std::vector<std::int64_t>& values, hsize_t width) {
    std::vector<hsize_t> extent{values.size() / std::max<hsize_t>(width, 1)};
    if (width != 0) extent.push_back(width);
    Handle id = make_dataset(name, H5T_STD_I64LE, extent, sizeof(std::int64_t));
    check(H5Dwrite(id, H5T_STD_I64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  }
};

Hdf5Writer::Hdf5Writer(const std::filesystem::path& path, Hdf5Options options) : impl_(std::make_unique<Impl>()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors are ours to tell
  impl_->path = path;
  impl_->temporary = path;
  impl_->temporary.replace_filename(fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid()));
  impl_->options = options;
  impl_->file =
      Handle(impl_->check(H5Fcreate(impl_->temporary.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)), H5Fclose);
}

Hdf5Writer::~Hdf5Writer() {
  if (!impl_ || impl_->file < 0) return;
  impl_->datasets.clear();
  impl_->file = Handle();
  std::error_code ignored;
  std::filesystem::remove(impl_->temporary, ignored);
}

void Hdf5Writer::append(std::string_view name, const TensorView& tensor, Hdf5Row row) {
  validate(tensor);
  const std::vector<std::byte> elements = stored_elements(tensor);
  const DType stored = stored_as(tensor.dtype);
  impl_->append(name, type_of(stored), item_size(stored), tensor.shape, elements.data(), row);
}

void Hdf5Writer::append(std::string_view name, double value, Hdf5Row row) {
  impl_->append(name, type_of(DType::F64), sizeof value, {}, &value, row);
}

void Hdf5Writer::append(std::string_view name, std::int64_t value, Hdf5Row row) {
  impl_->append(name, type_of(DType::I64), sizeof value, {}, &value, row);
}

void Hdf5Writer::append(std::string_view name, std::string_view text, Hdf5Row row) {
  const std::string ended(text);
  const char* pointer = ended.c_str();
  impl_->append(name, text_type(), sizeof pointer, {}, static_cast<const void*>(&pointer), row);
}

void Hdf5Writer::close() {
  if (impl_->file < 0) return;
  for (auto& [name, dataset] : impl_->datasets) {
    impl_->write_column(name + "_iterations", dataset.steps, 0);
    impl_->write_column(name + "_ranks", dataset.ranks, 0);
    if (dataset.is_ragged) impl_->write_column(name + "_shapes", dataset.shapes, dataset.extent.size() - 1);
  }
  impl_->datasets.clear();
  impl_->check(H5Fflush(impl_->file, H5F_SCOPE_LOCAL));
  impl_->file = Handle();
  std::error_code error;
  std::filesystem::rename(impl_->temporary, impl_->path, error);
  if (error) throw Error(ErrorCode::Io, fmt::format("cannot write .h5: {}: {}", error.message(), impl_->path.string()));
}

}  // namespace tenscope
