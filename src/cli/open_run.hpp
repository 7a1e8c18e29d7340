#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope {
class JsonWriter;
}

namespace tenscope::cli {

// The run that a user means: a path, or a name below runs/. Throws NotFound with a suggestion.
std::filesystem::path find_run(const std::string& path);
// The folder below runs/ where `path` is a run's name there, else `path` itself, whatever it is.
std::string place_of(const std::string& path);
std::filesystem::path find_run_folder(const std::string& path);  // the same, but no file
Reader open_run(const std::string& path);
std::vector<std::filesystem::path> find_runs(const std::string& path);  // all below it

// Where no path is given: runs/ if it is there, else this folder.
std::string default_runs();

// The one name that `pattern` means: the name itself, or a glob that only one name matches. Throws NotFound with a
// suggestion.
std::string find_name(const Reader& reader, const std::string& pattern);

// What is to be said behind its state: "", ", damaged", ", 15 events lost", ", limited" (a limit of the user's was
// reached).
std::string condition_of(const Reader& reader);
void write_losses(JsonWriter& json, const Reader& reader);  // the key "losses"
// For a message that something is not there: "; rank-0: 15 events were lost: no space". Empty where nothing was lost.
std::string losses_hint(const Reader& reader);

std::uint64_t size_on_disk(const std::filesystem::path& run);

// Tells on stderr of damage, losses and a crash, so that a listing with gaps is not taken for the whole.
void warn_of_problems(const Reader& reader);

// "3", "2:5", ":5", "2:"; a stop is not included, as in Python. Throws InvalidArgument.
struct StepRange {
  std::int64_t begin = INT64_MIN;
  std::int64_t end = INT64_MAX;
  bool contains(std::int64_t step) const noexcept { return step >= begin && step < end; }
};
StepRange parse_step_range(const std::string& text);

}  // namespace tenscope::cli
