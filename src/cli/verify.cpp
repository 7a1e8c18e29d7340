#include "store/verify.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <tuple>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "core/json_writer.hpp"
#include "report/table.hpp"
#include "store/run_folder.hpp"
#include "store/writer_groups.hpp"

namespace tenscope::cli {

using namespace report;
namespace {

std::vector<Problem> verify_run(const std::filesystem::path& run, const Output& output) {
  Progress progress(output.progress, fmt::format("checking {}", run.filename().string()));
  return store::verify(run, [&](std::uint64_t done, std::uint64_t total) {
    if (total > 0) progress.show(static_cast<double>(done) / static_cast<double>(total));
  });
}

// A line each; what several writers have alike, as one.
void print_problems(const std::vector<Problem>& problems, const Reader& reader) {
  struct Group {
    const Problem* first;
    std::string file, reason;  // without the writer
    std::vector<std::string> folders;
  };
  std::vector<Group> groups;
  std::map<std::tuple<std::string, std::string, int>, std::size_t> places;
  std::map<std::tuple<std::string, std::string, std::string>, int> repetitions;
  for (const Problem& problem : problems) {
    const std::filesystem::path file = problem.file.lexically_proximate(reader.path());
    const std::string folder = file.begin()->string();
    Group group{&problem, file.string(), problem.reason, {folder}};
    if (store::parse_writer_folder(folder)) {
      group.file.erase(0, folder.size() + 1);
      if (group.reason.starts_with(folder + ": ")) group.reason.erase(0, folder.size() + 2);
    }
    const int nth = repetitions[{folder, group.file, group.reason}]++;
    const auto [place, is_new] = places.try_emplace({group.file, group.reason, nth}, groups.size());
    if (is_new)
      groups.push_back(std::move(group));
    else
      groups[place->second].folders.push_back(folder);
  }
  for (const auto& [first, file, reason, folders] : groups) {
    if (folders.size() == 1)
      print("  {} at {}: {}\n", first->file.lexically_proximate(reader.path()).string(), first->offset, first->reason);
    else
      print("  {}{}{}: {}\n", file, file.empty() ? "" : " of ", store::writers_text(folders, reader), reason);
  }
}

}  // namespace

Action prepare_verify(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("path", *path, "A run, or a folder of runs: then all in it")->required();
  return [path](const Output& output) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("runs").begin_array();
    bool is_fine = true;
    for (const auto& run : find_runs(*path)) {
      const std::vector<Problem> problems = verify_run(run, output);
      is_fine &= problems.empty();
      const Reader reader(run);
      json.begin_object().key("path").text(run.string()).key("problems").begin_array();
      for (const Problem& problem : problems) {
        json.begin_object().key("file").text(problem.file.string()).key("offset").number(problem.offset);
        json.key("reason").text(problem.reason).end_object();
      }
      json.end_array();
      write_losses(json, reader);
      json.end_object();
      if (output.json) continue;
      print("{}: {}\n", run.string(),
            problems.empty() ? toned("every checksum and fingerprint is right", Tone::Green, output.color)
                             : toned(fmt::format("{} problem{}", problems.size(), problems.size() == 1 ? "" : "s"),
                                     Tone::Red, output.color));
      print_problems(problems, reader);
      for (const Loss& loss : store::folded_losses(reader))
        if (loss.is_limit) print("  no damage, but a limit that was set: {}\n", to_string(loss));
    }
    json.end_array().end_object();
    if (output.json) print_json(text);
    return is_fine ? kFine : kDifferent;
  };
}

}  // namespace tenscope::cli
