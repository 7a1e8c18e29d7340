#include "tenscope/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "compare/checkpoint.hpp"
#include "compare/run_diff.hpp"
#include "core/json_writer.hpp"
#include "core/suggest.hpp"
#include "report/values.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

struct ExplainOptions {
  std::string a, b;
  std::optional<std::int64_t> step, call;
  std::optional<int> rank;
};

// A tensor in a file or a run, and what keeps it alive.
struct Named {
  std::string name;
  TensorView view;
  TensorData data{};
};

// The tensor of a file, or of the shards of one; `name` is empty where it has only one.
Named in_file(const std::string& path, const std::string& name) {
  const compare::Checkpoint file(path);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const compare::StoredTensor& tensor = file.tensors()[i];
    names.push_back(tensor.name);
    if (tensor.name != name && !(name.empty() && file.tensors().size() == 1)) continue;
    if (!tensor.is_readable)
      throw Error(ErrorCode::Unsupported,
                  fmt::format("cannot read the type {} of '{}' yet: {}", tensor.type, tensor.name, path));
    Named found{.name = name.empty() ? path : fmt::format("{}:{}", path, name), .view = {}, .data = file.data(i)};
    found.view = found.data.view;
    return found;
  }
  if (!name.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("there is no tensor '{}' in the file{}: {}", name, did_you_mean(name, names), path));
  constexpr std::size_t kMostNamed = 5;
  const std::size_t count = names.size();
  if (count > kMostNamed) names.resize(kMostNamed);
  throw Error(ErrorCode::InvalidArgument, fmt::format("which of its {} tensors? Say {}:NAME, with one of {}{}", count,
                                                      path, fmt::join(names, ", "), count > kMostNamed ? ", ..." : ""));
}

Named in_run(const std::string& path, const std::string& pattern, const ExplainOptions& options) {
  const Reader reader = open_run(path);
  warn_of_problems(reader);
  Named found;
  const std::string name = find_name(reader, pattern);
  found.name = fmt::format("{}:{}", path, name);
  std::optional<EventId> last;
  for (const EventId id : reader.find({.step = options.step, .call = options.call, .rank = options.rank}))
    if (reader.is_tensor(id) && reader.name(id) == name) last = id;
  if (!last)
    throw Error(ErrorCode::NotFound,
                fmt::format("there is no tensor '{}' with that step, call or rank: {}", name, reader.path().string()));
  found.data = reader.tensor(*last);
  found.view = found.data.view;
  return found;
}

// FILE, FILE:NAME or RUN:NAME. A path may have colons of its own.
Named find_tensor(const std::string& text, const ExplainOptions& options) {
  std::error_code error;
  if (fs::is_regular_file(text, error)) return in_file(text, "");
  for (std::size_t at = text.find(':'); at != text.npos; at = text.find(':', at + 1)) {
    const std::string path = text.substr(0, at), name = text.substr(at + 1);
    if (name.empty()) continue;
    if (fs::is_regular_file(path, error)) return in_file(path, name);
    if (fs::is_directory(path, error) && !compare::is_run_folder(path) && compare::is_checkpoint(path))
      return in_file(path, name);
    if (fs::is_directory(path, error) || fs::is_directory(fs::path("runs") / path, error))
      return in_run(path, name, options);
  }
  if (fs::is_directory(text, error))
    throw Error(ErrorCode::InvalidArgument, fmt::format("which of its tensors? Say {}:NAME", text));
  if (const std::size_t colon = text.rfind(':'); colon != text.npos && colon > 0) find_run(text.substr(0, colon));
  throw Error(ErrorCode::NotFound, fmt::format("no such file, nor a tensor of a run as RUN:NAME: {}", text));
}

void write_side(JsonWriter& json, std::string_view key, const Named& side) {
  json.key(key).begin_object().key("name").text(side.name).key("dtype").text(to_string(side.view.dtype)).key("shape");
  report::write_shape(json, {side.view.shape.begin(), side.view.shape.end()});
  json.end_object();
}

void print_document(const Explanation& found, const Named& a, const Named& b) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  write_side(json, "a", a);
  write_side(json, "b", b);
  json.key("relation").text(found.relation).key("words").text(found.words).key("numpy");
  found.numpy.empty() ? json.null() : json.text(found.numpy);
  json.key("arrays").begin_object();
  for (const ExplanationArray& array : found.arrays) {
    json.key(array.name).begin_object().key("shape");
    report::write_shape(json, array.shape);
    json.key("values").begin_array();
    for (const double value : array.values)
      array.is_integer ? json.number(static_cast<std::int64_t>(value)) : json.number(value);
    json.end_array().end_object();
  }
  json.end_object().end_object();
  print_json(text);
}

void print_text(const Explanation& found, const Named& a, const Named& b) {
  for (const auto& [letter, side] : {std::pair{'a', &a}, std::pair{'b', &b}})
    print("{}  {} {}  {}\n", letter, to_string(side->view.dtype),
          report::shape_text({side->view.shape.begin(), side->view.shape.end()}), side->name);
  print("{}\n", found.words);
  if (!found.numpy.empty()) print("    {}\n", found.numpy);
  constexpr std::size_t kMostShown = 6;
  for (const ExplanationArray& array : found.arrays) {
    std::vector<std::string> numbers;
    for (std::size_t i = 0; i < std::min(kMostShown, array.values.size()); ++i)
      numbers.push_back(fmt::format("{:.6g}", array.values[i]));
    print("    {} {} = {}{}\n", array.name, report::shape_text(array.shape), fmt::join(numbers, ", "),
          array.values.size() > kMostShown ? ", ..." : "");
  }
}

}  // namespace

Action prepare_explain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  const std::string what =
      "a file (.npy .npz .pt .safetensors .gguf .pkl), FILE:NAME of one with several tensors, or RUN:NAME";
  app.add_option("a", options->a, "The tensor a: " + what)->required();
  app.add_option("b", options->b, "The tensor b, likewise")->required();
  app.add_option("--step", options->step, "Of a run: the step (default: the last)");
  app.add_option("--call", options->call, "Of a run: the call within the step (default: the last)");
  app.add_option("--rank", options->rank, "Of a run: the rank (default: the last to write it)");
  return [options](const Output& output) {
    const Named a = find_tensor(options->a, *options), b = find_tensor(options->b, *options);
    const Explanation found = explain(a.view, b.view);
    output.json ? print_document(found, a, b) : print_text(found, a, b);
    return found.found() ? kFine : kDifferent;
  };
}

}  // namespace tenscope::cli
