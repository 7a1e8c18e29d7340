#include "cli/export_hdf5.hpp"

namespace tenscope::cli {

void export_hdf5(const Reader& reader, std::span<const EventId> events, const std::filesystem::path& out,
                 Hdf5Options options) {
  Hdf5Writer file(out, options);
  for (const EventId id : events) {
    const std::string_view name = reader.name(id);
    const Hdf5Row row{.step = reader.step(id), .rank = reader.writers()[reader.writer_index(id)].rank};
    if (reader.is_tensor(id)) {
      file.append(name, reader.tensor(id).view, row);
      continue;
    }
    const EventValue value = reader.event(id).value;
    if (auto* flag = std::get_if<bool>(&value)) file.append(name, std::int64_t{*flag}, row);
    if (auto* integer = std::get_if<std::int64_t>(&value)) file.append(name, *integer, row);
    if (auto* number = std::get_if<double>(&value)) file.append(name, *number, row);
    if (auto* integer = std::get_if<BigInt>(&value)) file.append(name, std::string_view(integer->digits), row);
    if (auto* text = std::get_if<std::string>(&value)) file.append(name, std::string_view(*text), row);
  }
  file.close();
}

}  // namespace tenscope::cli
