#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "format/source.hpp"

namespace tenscope {

// torch's format before the zip (1.5 and earlier, and still what a pickled tensor holds): four pickles (a magic number,
// a protocol version, facts about the machine, the object), a pickle of storage keys, and the storages one after
// another.
bool is_legacy_pt(const Source& source) noexcept;
Value read_legacy_pt(const Source& source, const LoadOptions& options, Budget& budget);

// A stream whose object is a storage: what torch.storage._load_from_bytes is given. The dtype is absent for an untyped
// one.
std::pair<std::shared_ptr<const Storage>, std::optional<DType>> read_legacy_storage(const Source& source,
                                                                                    const LoadOptions& options,
                                                                                    Budget& budget, int depth);

}  // namespace tenscope
