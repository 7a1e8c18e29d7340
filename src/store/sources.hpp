#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "store/fetch.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {

inline constexpr std::string_view kSourcesFolder = "sources";

// What the meta of a note `source` says; nothing where it is something else.
std::optional<SourceFile> parse_source(std::string_view meta);

// The text whose fingerprint this is. Throws NotFound, Corrupt (it has another fingerprint), Io.
std::string read_source(const std::filesystem::path& run, const Fetcher& fetcher, std::string_view fingerprint);

}  // namespace tenscope::store
