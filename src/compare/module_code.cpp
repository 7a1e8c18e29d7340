#include "compare/module_code.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "compare/line_diff.hpp"
#include "compare/thresholds.hpp"
#include "tenscope/error.hpp"

namespace tenscope {

std::string_view to_string(DiffSource source) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"unknown", "same", "differs", "another"};
  return kNames[static_cast<std::size_t>(source)];
}

}  // namespace tenscope

namespace tenscope::compare {
namespace {

constexpr std::size_t kMostLines = 30;      // of a diff of sources
constexpr std::size_t kMostElsewhere = 20;  // names of other definitions that differ
constexpr std::string_view kModuleLevel = "<module>";
constexpr double kMostOfAnother = 0.5;  // of the longer one's lines, that classes of other names have in common

std::string_view run_name(int run) { return run == 0 ? "first" : "second"; }

KeptFile kept_file(const SourceOfModule& source, const Interner& interner) {
  return {.file = std::string(interner.text(source.file)),
          .fingerprint = std::string(interner.text(source.fingerprint)),
          .left_out = std::string(interner.text(source.left_out))};
}

std::string_view qualified_name(const CodeOfModule& code) {
  const std::size_t colon = code.class_path.find(':');
  return colon == std::string::npos ? std::string_view(code.cls) : std::string_view(code.class_path).substr(colon + 1);
}

std::optional<std::size_t> line_of(std::string_view site) {
  const std::size_t colon = site.rfind(':');
  std::size_t line = 0;
  if (colon == site.npos) return std::nullopt;
  const auto read = std::from_chars(site.data() + colon + 1, site.data() + site.size(), line);
  if (read.ec != std::errc() || line == 0) return std::nullopt;
  return line - 1;
}

// What is not in a definition, without empty lines and comments.
std::vector<std::string_view> outside_definitions(const PythonSource& source) {
  std::vector<std::string_view> lines;
  std::size_t at = 0;
  const auto add_until = [&](std::size_t end) {
    for (; at < end; ++at) {
      const std::string_view line = source.lines()[at];
      const std::size_t begin = line.find_first_not_of(" \t");
      if (begin != line.npos && line[begin] != '#') lines.push_back(line);
    }
  };
  for (const Definition& one : source.definitions()) {
    if (one.begin < at) continue;
    add_until(one.begin);
    at = one.end;
  }
  add_until(source.lines().size());
  return lines;
}

// Definitions of the outermost level that one text alone has, or that differ, and kModuleLevel where what stands around
// them does. Two of one name are one.
std::vector<std::string> differing_definitions(const PythonSource& a, const PythonSource& b) {
  using Texts = std::map<std::string, std::vector<std::string_view>>;
  std::vector<std::string> order;
  const auto collect = [&](const PythonSource& source) {
    Texts texts;
    std::size_t end = 0;
    for (const Definition& one : source.definitions()) {
      if (one.begin < end) continue;  // inside the one before it
      end = one.end;
      auto& lines = texts[one.name];
      for (const std::string_view line : source.lines_of(one)) lines.push_back(line);
      if (std::ranges::find(order, one.name) == order.end()) order.push_back(one.name);
    }
    return texts;
  };
  Texts in_a = collect(a), in_b = collect(b);
  in_a[std::string(kModuleLevel)] = outside_definitions(a);
  in_b[std::string(kModuleLevel)] = outside_definitions(b);
  order.emplace_back(kModuleLevel);
  std::erase_if(order, [&](const std::string& name) {
    const auto x = in_a.find(name), y = in_b.find(name);
    return x != in_a.end() && y != in_b.end() && x->second == y->second;
  });
  return order;
}

std::string outermost(std::string_view name) { return std::string(name.substr(0, name.find('.'))); }

// Two classes of other names that have little in common, without empty lines.
bool are_others(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b, const LineDiff& diff) {
  const auto is_empty = [](std::string_view line) { return line.find_first_not_of(" \t") == line.npos; };
  const auto of_a = std::ssize(a) - std::ranges::count_if(a, is_empty),
             of_b = std::ssize(b) - std::ranges::count_if(b, is_empty);
  const auto removed = std::ranges::count_if(
      diff.lines, [&](std::string_view line) { return line.starts_with('-') && !is_empty(line.substr(1)); });
  return static_cast<double>(of_a - removed) < kMostOfAnother * static_cast<double>(std::max(of_a, of_b));
}

// A file of a library as one imports it: "torch/nn/modules/linear.py".
std::string short_file(const std::string& file) {
  constexpr std::string_view kLibraries = "/site-packages/";
  const std::size_t at = file.rfind(kLibraries);
  return at == std::string::npos ? file : file.substr(at + kLibraries.size());
}

}  // namespace

CodeOfModule code_of(const ModuleTree& tree, const ModuleNode& node, const Interner& interner) {
  CodeOfModule code{.cls = std::string(interner.text(node.cls)),
                    .class_path = {},
                    .site = std::string(interner.text(node.site)),
                    .class_file = kept_file(node.class_source, interner),
                    .forward_file = kept_file(node.forward_source, interner),
                    .has_sources = tree.has_sources};
  simdjson::dom::parser parser;
  std::string_view path;
  if (node.description != 0 && parser.parse(simdjson::padded_string(interner.text(node.description)))["class_path"].get(
                                   path) == simdjson::SUCCESS)
    code.class_path = path;
  return code;
}

// A class in the text that a run keeps of its file; where its forward is not in it, what it is in: the class that it is
// inherited from, or a function that was put there.
struct CodeComparison::Found {
  const PythonSource *of_class = nullptr, *of_forward = nullptr;
  const Definition *definition = nullptr, *forward = nullptr;
  std::string site;
  std::string trouble;  // not empty: it is not known
};

const PythonSource* CodeComparison::source(int run, const std::string& fingerprint, std::string& trouble) {
  auto& known = sources_[fingerprint];
  if (!known) {
    try {
      known = std::make_unique<PythonSource>(text_(run, fingerprint));
    } catch (const Error& error) {
      trouble = error.what();
    }
  }
  return known.get();
}

CodeComparison::Found CodeComparison::find(int run, const CodeOfModule& code) {
  Found found{.site = code.site};
  const KeptFile& file = code.class_file;
  const auto line = line_of(code.site);
  const bool is_one_file = code.forward_file.file == file.file;
  if (!code.has_sources) {
    found.trouble = fmt::format("the {} run keeps no sources", run_name(run));
  } else if (!file.left_out.empty()) {
    found.trouble = fmt::format("the {} run does not keep {}: {}", run_name(run), file.file, file.left_out);
  } else if (file.fingerprint.empty()) {
    found.trouble = fmt::format("the {} run does not keep the source of {}", run_name(run), code.cls);
  } else {
    found.of_class = source(run, file.fingerprint, found.trouble);
    if (found.of_class == nullptr) return found;
    found.definition = found.of_class->find_class(qualified_name(code), is_one_file ? line : std::nullopt);
    if (found.definition == nullptr)
      found.trouble = fmt::format("the class {} was not found in what the {} run keeps of {}", qualified_name(code),
                                  run_name(run), file.file);
  }
  if (found.definition == nullptr) return found;
  if (!line) {
    const Definition* forward = found.of_class->find(found.definition->name + ".forward");
    found.site = fmt::format("{}:{}", file.file, (forward != nullptr ? forward : found.definition)->line + 1);
  } else if (!is_one_file || !found.definition->contains(*line)) {
    find_forward(run, code, *line, found);
  }
  return found;
}

void CodeComparison::find_forward(int run, const CodeOfModule& code, std::size_t line, Found& found) {
  const KeptFile& file = code.forward_file;
  if (file.fingerprint.empty()) {
    found.trouble = fmt::format("the {} run does not keep {}, which its forward is in{}", run_name(run), file.file,
                                file.left_out.empty() ? "" : ": " + file.left_out);
    return;
  }
  found.of_forward = source(run, file.fingerprint, found.trouble);
  if (found.of_forward == nullptr) return;
  found.forward = found.of_forward->around(line);
  if (found.forward == nullptr) {
    found.of_forward = nullptr;
    found.trouble = fmt::format("its forward was not found in what the {} run keeps of {}", run_name(run), file.file);
  }
}

DiffCode CodeComparison::compare(const CodeOfModule& a, const CodeOfModule& b) {
  const Found x = find(0, a), y = find(1, b);
  DiffCode code{.class_a = a.class_path, .class_b = b.class_path, .site_a = x.site, .site_b = y.site};
  if (!x.trouble.empty() || !y.trouble.empty()) {
    const bool has_none = !a.has_sources && !b.has_sources;
    code.why_unknown = has_none ? "neither run keeps sources" : !x.trouble.empty() ? x.trouble : y.trouble;
    return code;
  }
  code.source = DiffSource::Same;
  const auto add = [&](const Definition& first, const PythonSource& of_first, const std::string& file_a,
                       const Definition& second, const PythonSource& of_second, const std::string& file_b) {
    const auto lines_a = of_first.lines_of(first), lines_b = of_second.lines_of(second);
    const LineDiff diff = diff_lines(lines_a, lines_b, {.first_a = first.begin, .first_b = second.begin});
    if (diff.lines.empty()) return;
    const bool is_another = first.name != second.name && are_others(lines_a, lines_b, diff);
    code.source = is_another ? DiffSource::Another : DiffSource::Differs;
    code.removed += diff.removed;
    code.added += diff.added;
    if (is_another) return;
    code.lines.push_back("--- " + short_file(file_a));
    code.lines.push_back("+++ " + short_file(file_b));
    code.lines.insert(code.lines.end(), diff.lines.begin(), diff.lines.end());
  };
  add(*x.definition, *x.of_class, a.class_file.file, *y.definition, *y.of_class, b.class_file.file);
  if (x.of_forward != nullptr && y.of_forward != nullptr && code.source != DiffSource::Another)
    add(*x.forward, *x.of_forward, a.forward_file.file, *y.forward, *y.of_forward, b.forward_file.file);
  if (code.lines.size() > kMostLines) {
    code.left_out = code.lines.size() - kMostLines;
    code.lines.resize(kMostLines);
  }
  if (short_file(a.class_file.file) == short_file(b.class_file.file) && x.of_class != y.of_class) {
    code.elsewhere = differing_definitions(*x.of_class, *y.of_class);
    std::set<std::string> shown = {outermost(x.definition->name), outermost(y.definition->name)};
    if (x.of_forward == x.of_class) shown.insert(outermost(x.forward->name));
    std::erase_if(code.elsewhere, [&](const std::string& name) { return shown.contains(name); });
    if (code.elsewhere.size() > kMostElsewhere) code.elsewhere.resize(kMostElsewhere);
  }
  return code;
}

namespace {

using Attributes = std::vector<std::pair<std::string, std::string>>;  // values as JSON, in the order of the recording

std::optional<Attributes> attributes_of(const ModuleNode& node, const Interner& interner) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (node.description == 0 || parser.parse(simdjson::padded_string(interner.text(node.description)))["attributes"].get(
                                   object) != simdjson::SUCCESS)
    return std::nullopt;
  Attributes attributes;
  for (const auto& [name, value] : object) attributes.emplace_back(name, simdjson::minify(value));
  return attributes;
}

// 1 and 1.0 are one number.
bool is_same_value(const std::string& x, const std::string& y) {
  if (x == y) return true;
  double a = 0, b = 0;
  const auto is_number = [](const std::string& text, double& into) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), into);
    return read.ec == std::errc() && read.ptr == text.data() + text.size();
  };
  return is_number(x, a) && is_number(y, b) && a == b;
}

// "config." of "config.hidden_act": which is told at one module, the outermost.
std::string_view config_of(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot + 1);
}

bool has_config(const Attributes& attributes, std::string_view config) {
  return std::ranges::any_of(attributes, [&](const auto& one) { return one.first.starts_with(config); });
}

const std::string* find(const Attributes& attributes, std::string_view name) {
  const auto found = std::ranges::find(attributes, name, &Attributes::value_type::first);
  return found == attributes.end() ? nullptr : &found->second;
}

// Two modules' attributes from call to call: which of those that began as equals become others, and when.
class ChangingAttributes {
 public:
  ChangingAttributes(const ModuleNode& a, const ModuleNode& b, Attributes in_a, Attributes in_b,
                     const Interner& interner)
      : sides_{Side{&a, std::move(in_a)}, Side{&b, std::move(in_b)}}, interner_(interner) {}

  void add_differences(const std::vector<DiffAttribute>& known, std::vector<DiffAttribute>& into) {
    std::set<std::string> told;
    for (const DiffAttribute& one : known) told.insert(one.name);
    while (const auto moment = next_moment()) {
      std::vector<std::string> touched;
      for (Side& side : sides_) apply(side, *moment, touched);
      for (const std::string& name : touched) {
        const std::string *x = find(sides_[0].values, name), *y = find(sides_[1].values, name);
        if (x == nullptr ? y == nullptr : y != nullptr && is_same_value(*x, *y)) continue;
        if (!told.insert(name).second) continue;
        into.push_back({.root = std::string(interner_.text(sides_[0].node->root)),
                        .module = sides_[0].node->path,
                        .name = name,
                        .a = x != nullptr ? *x : "",
                        .b = y != nullptr ? *y : "",
                        .step = moment->first,
                        .call = moment->second});
      }
    }
  }

 private:
  using Moment = std::pair<std::int64_t, std::int64_t>;  // step, call

  struct Side {
    const ModuleNode* node;
    Attributes values;
    std::size_t next = 0;
  };

  std::optional<Moment> next_moment() const {
    std::optional<Moment> first;
    for (const Side& side : sides_) {
      if (side.next == side.node->changes.size()) continue;
      const AttributeChange& change = side.node->changes[side.next];
      const Moment moment(change.step, change.call);
      if (!first || moment < *first) first = moment;
    }
    return first;
  }

  void apply(Side& side, const Moment& moment, std::vector<std::string>& touched) {
    for (; side.next < side.node->changes.size(); ++side.next) {
      const AttributeChange& change = side.node->changes[side.next];
      if (Moment(change.step, change.call) > moment) return;
      simdjson::dom::object object, changed;
      simdjson::dom::array gone;
      const std::string_view json = interner_.text(change.meta);
      if (parser_.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) continue;
      if (object["changed"].get(changed) == simdjson::SUCCESS) {
        for (const auto& [key, value] : changed) {
          const std::string name(key);
          touched.push_back(name);
          const auto known = std::ranges::find(side.values, name, &Attributes::value_type::first);
          if (known != side.values.end())
            known->second = simdjson::minify(value);
          else
            side.values.emplace_back(name, simdjson::minify(value));
        }
      }
      if (object["gone"].get(gone) == simdjson::SUCCESS) {
        for (const auto& each : gone) {
          std::string_view name;
          if (each.get(name) != simdjson::SUCCESS) continue;
          touched.emplace_back(name);
          std::erase_if(side.values, [&](const auto& one) { return one.first == name; });
        }
      }
    }
  }

  std::array<Side, 2> sides_;
  const Interner& interner_;
  simdjson::dom::parser parser_;
};

}  // namespace

std::vector<DiffAttribute> compare_attributes(const ModuleNode& a, const ModuleNode& b, const Interner& interner) {
  std::vector<DiffAttribute> differences;
  if (a.description == b.description && a.changes.empty() && b.changes.empty()) return differences;
  const auto in_a = attributes_of(a, interner), in_b = attributes_of(b, interner);
  if (!in_a || !in_b) return differences;
  const auto add = [&](const std::string& name, const std::string* x, const std::string* y) {
    if (x != nullptr && y != nullptr && is_same_value(*x, *y)) return;
    const std::string_view config = config_of(name);
    if (!config.empty() && (!has_config(*in_a, config) || !has_config(*in_b, config))) return;
    differences.push_back({.root = std::string(interner.text(a.root)),
                           .module = a.path,
                           .name = name,
                           .a = x != nullptr ? *x : "",
                           .b = y != nullptr ? *y : ""});
  };
  for (const auto& [name, value] : *in_a) add(name, &value, find(*in_b, name));
  for (const auto& [name, value] : *in_b)
    if (find(*in_a, name) == nullptr) add(name, nullptr, &value);
  if (!a.changes.empty() || !b.changes.empty()) {
    const std::vector<DiffAttribute> from_the_first_call = differences;
    ChangingAttributes(a, b, *in_a, *in_b, interner).add_differences(from_the_first_call, differences);
  }
  return differences;
}

std::vector<DiffAttribute> compare_attributes(const Alignment& alignment, const Interner& interner,
                                              const ModuleLookup& module_of) {
  std::vector<DiffAttribute> all;
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < alignment.tree_a.nodes.size(); ++i)
    if (alignment.module_to_b[i] >= 0) order.emplace_back(alignment.tree_a.nodes[i].order, i);
  std::ranges::sort(
      order, {}, [&](const auto& one) { return std::pair(one.first, alignment.tree_a.nodes[one.second].path.size()); });
  for (const auto& [first_call, i] : order) {
    const ModuleNode& b = alignment.tree_b.nodes[static_cast<std::size_t>(alignment.module_to_b[i])];
    const ModuleNode& a = alignment.tree_a.nodes[i];
    const auto in_a = module_of ? module_of(0, a) : ModuleOfRun{&alignment.tree_a, &a},
               in_b = module_of ? module_of(1, b) : ModuleOfRun{&alignment.tree_b, &b};
    if (!in_a || !in_b) continue;
    auto found = compare_attributes(*in_a->node, *in_b->node, interner);
    for (DiffAttribute& one : found) one.root = interner.text(a.root), one.module = a.path;
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<DiffAttribute> compare_dtypes(const ModuleNode& a, const ModuleNode& b, const LanePair& lane,
                                          const Interner& interner) {
  const auto collect = [&](const Lane& of, const ModuleNode& node) {
    std::map<std::string_view, DType> dtypes;  // as they are first recorded
    for (const Item& item : of.items)
      if (item.io == Io::Param && item.is_tensor() && item.root == node.root && interner.text(item.scope) == node.path)
        dtypes.try_emplace(interner.text(item.parameter), item.dtype);
    return dtypes;
  };
  std::vector<DiffAttribute> differences;
  const auto in_a = collect(*lane.a, a), in_b = collect(*lane.b, b);
  for (const auto& [name, dtype] : in_a) {
    const auto other = in_b.find(name);
    if (other != in_b.end() && other->second != dtype)
      differences.push_back({.root = std::string(interner.text(a.root)),
                             .module = a.path,
                             .name = fmt::format("dtype of {}", name),
                             .a = fmt::format("\"{}\"", to_string(dtype)),
                             .b = fmt::format("\"{}\"", to_string(other->second))});
  }
  return differences;
}

}  // namespace tenscope::compare
