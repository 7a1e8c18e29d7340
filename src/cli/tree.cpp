// Overview: the events of a run in the order in which they happened, as a tree: what lies between enter and exit is
// indented below it, per writer, thread and task. With filters, an event that passes is shown with the calls around it,
// and nothing else.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "compare/operation.hpp"
#include "core/json_writer.hpp"
#include "report/series.hpp"
#include "report/style.hpp"
#include "report/values.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace {

using namespace report;

struct TreeOptions {
  std::string run, function, variable, line, steps;
  std::optional<int> rank;
  std::optional<double> since, until;  // seconds after the first event
};

bool is_call(EventKind kind) { return kind == EventKind::Enter || kind == EventKind::Exit; }

// What a person calls the function or module that an enter or exit is about.
std::string call_name(const Event& event) {
  const std::string& name = event.name.empty() ? event.scope : event.name;
  if (name.empty()) return !event.root.empty() ? event.root : event.cls;
  return event.cls.empty() || event.cls == name ? name : fmt::format("{} ({})", name, event.cls);
}

// "train" also means Trainer.train and main.<locals>.train.
bool is_in_function(const Event& event, const std::string& pattern) {
  return matches_glob(event.scope, pattern) || matches_glob(event.scope, "*." + pattern) ||
         matches_glob(event.cls, pattern) || (is_call(event.kind) && matches_glob(event.name, pattern));
}

// "file.py:12" matches 12, file.py, file.py:12 and patterns of them.
bool is_at_line(const std::string& site, const std::string& pattern) {
  const std::size_t colon = site.rfind(':');
  const std::string file = site.substr(0, colon);
  return matches_glob(site, pattern) || matches_glob(file, pattern) || matches_glob(file, "*/" + pattern) ||
         matches_glob(site, "*/" + pattern) || (colon != site.npos && site.substr(colon + 1) == pattern);
}

std::string tensor_text(const TensorRecord& tensor, bool color) {
  if (const auto number = number_in_words(tensor)) {
    const bool is_bad = tensor.stats.nan + tensor.stats.pos_inf + tensor.stats.neg_inf > 0;
    return fmt::format("{}  {}", toned(*number, is_bad ? kBad : Tone::Plain, color),
                       toned(fmt::format("{}{}", to_string(tensor.dtype), shape_text(tensor.shape)), kFaint, color));
  }
  std::string text = fmt::format("{}{}", to_string(tensor.dtype), shape_text(tensor.shape));
  if (!std::isnan(tensor.stats.min))
    text += fmt::format("  min {}  max {}  mean {}", extreme_text(tensor, false), extreme_text(tensor, true),
                        number_text(tensor.stats.mean));
  if (tensor.stats.nan > 0) text += toned(fmt::format("  NaN {}", tensor.stats.nan), kBad, color);
  const std::int64_t infinite = tensor.stats.pos_inf + tensor.stats.neg_inf;
  if (infinite > 0) text += toned(fmt::format("  Inf {}", infinite), kBad, color);
  return text;
}

class TreePrinter {
 public:
  TreePrinter(const Reader& reader, const TreeOptions& options, const Output& output)
      : reader_(reader),
        options_(options),
        output_(output),
        steps_(options.steps.empty() ? StepRange{} : parse_step_range(options.steps)) {}

  void print_all() {
    if (output_.json) print_text(fmt::format("{{\"run\":{},\"events\":[", json_text(reader_.path().string())));
    for (std::size_t writer = 0; writer < reader_.writers().size(); ++writer) {
      if (options_.rank && reader_.writers()[writer].rank != *options_.rank) continue;
      stacks_.clear();
      tensors_.clear();
      if (!output_.json && reader_.writers().size() > 1) {
        print("{}\n", toned(reader_.writers()[writer].folder, kHeading, output_.color));
      }
      for (EventId id = 0; id < reader_.event_count(); ++id) {
        if (reader_.writer_index(id) == writer) pass(id);
      }
    }
    if (output_.json) print_text("]}\n");
  }

 private:
  struct Frame {
    Event enter;
    EventId id = 0;
    bool is_printed = false;
    bool is_wanted = false;  // it, or a call around it, is the function asked for
  };
  using Stack = std::vector<Frame>;

  struct Tensor {  // of a watched variable at its last change
    std::string call;
    DType dtype{};
    std::vector<std::int64_t> shape;
    std::string device;
  };

  static std::string json_text(std::string_view text) {
    std::string json;
    append_json_text(json, text);
    return json;
  }

  void pass(EventId id) {
    const Event event = reader_.event(id);
    if (event.kind == EventKind::Note && event.name == kSourceNote) return;  // the recorder's own affair
    if (!start_ns_) start_ns_ = event.time_ns;
    if (event.kind == EventKind::Change) other_ = other_than_before(event);
    Stack& stack = stacks_[{event.thread, event.task}];
    if (event.kind == EventKind::Enter) {
      const bool is_wanted = (!stack.empty() && stack.back().is_wanted) || options_.function.empty() ||
                             is_in_function(event, options_.function);
      stack.push_back({event, id, false, is_wanted});
      if (passes(event, stack)) print_frames(stack);
      return;
    }
    if (event.kind == EventKind::Exit) {
      pass_exit(id, event, stack);
    } else if (passes(event, stack)) {
      print_frames(stack);
      print_event(id, event, stack.size());
    }
  }

  // What a tensor is now that it was not at the variable's last change in the same call: "shape, dtype".
  std::string other_than_before(const Event& event) {
    const auto* now = std::get_if<TensorRecord>(&event.value);
    Tensor& before = tensors_[{event.thread, event.task, event.scope, event.name}];
    const Tensor after =
        now ? Tensor{meta_text(parser_, event.meta, "call"), now->dtype, now->shape, now->device} : Tensor{};
    std::string parts;
    const auto note = [&](bool is_other, std::string_view part) {
      if (is_other) parts += fmt::format("{}{}", parts.empty() ? "" : ", ", part);
    };
    if (now && before.call == after.call && !meta_text(parser_, event.meta, "old").empty()) {
      note(before.shape != after.shape, "shape");
      note(before.dtype != after.dtype, "dtype");
      note(before.device != after.device, "device");
    }
    before = after;
    return parts;
  }

  // An exit closes the innermost call of its name; one without an enter (recording began inside it) stands alone.
  void pass_exit(EventId id, const Event& event, Stack& stack) {
    const auto match = std::find_if(stack.rbegin(), stack.rend(), [&](const Frame& frame) {
      return frame.enter.name == event.name && frame.enter.scope == event.scope;
    });
    if (match == stack.rend()) {
      if (passes(event, stack)) print_event(id, event, stack.size());
      return;
    }
    const auto depth = static_cast<std::size_t>(stack.rend() - match) - 1;
    const bool is_printed = stack[depth].is_printed;
    stack.resize(depth);
    if (is_printed) print_event(id, event, depth);
  }

  bool passes(const Event& event, const Stack& stack) const {
    if (!steps_.contains(event.step)) return false;
    const double seconds = static_cast<double>(event.time_ns - *start_ns_) / 1e9;
    if ((options_.since && seconds < *options_.since) || (options_.until && seconds > *options_.until)) return false;
    if (!options_.variable.empty() && (is_call(event.kind) || !matches_glob(event.name, options_.variable)))
      return false;
    if (!options_.line.empty() && !is_at_line(event.site, options_.line)) return false;
    if (options_.function.empty()) return true;
    return (!stack.empty() && stack.back().is_wanted) || is_in_function(event, options_.function);
  }

  void print_frames(Stack& stack) {
    for (std::size_t depth = 0; depth < stack.size(); ++depth) {
      if (std::exchange(stack[depth].is_printed, true)) continue;
      print_event(stack[depth].id, stack[depth].enter, depth);
    }
  }

  void print_event(EventId id, const Event& event, std::size_t depth) {
    if (output_.json) return print_json(id, event, depth);
    const double seconds = static_cast<double>(event.time_ns - *start_ns_) / 1e9;
    const std::string time = toned(fmt::format("{:>9.6f} s", seconds), kFaint, output_.color);
    const std::string site = event.site.empty() ? "" : toned("  " + event.site, kFaint, output_.color);
    print("{}  {:{}}{}{}\n", time, "", 2 * std::min<std::size_t>(depth, 40), text_of(event), site);
  }

  std::string text_of(const Event& event) {
    const bool color = output_.color;
    switch (event.kind) {
      case EventKind::Enter:
        return fmt::format("→ {}", toned(call_name(event), kHeading, color));
      case EventKind::Exit: {
        std::string text = fmt::format("← {}", call_name(event));
        const std::string duration = meta_text(parser_, event.meta, "duration_ns");
        std::int64_t ns = 0;
        const auto parsed = std::from_chars(duration.data(), duration.data() + duration.size(), ns);
        if (!duration.empty() && parsed.ec == std::errc()) text += "  " + duration_text(ns);
        const std::string raised = meta_text(parser_, event.meta, "raised");
        if (!raised.empty()) text += "  " + toned("raised " + raised, kBad, color);
        return text;
      }
      case EventKind::Change: {
        const std::string old = meta_text(parser_, event.meta, "old");
        std::string text =
            fmt::format("{}: {}{}", toned(event.name, kName, color), old.empty() ? "" : old + " → ", value_of(event));
        if (!other_.empty()) text += toned("  other " + other_, kDoubt, color);
        return text;
      }
      case EventKind::Value:
        if (event.io == Io::Op) return operation_text(event);
        return fmt::format("{} = {}", toned(event.name, kName, color), value_of(event));
      case EventKind::Step:
        return toned(fmt::format("step {}", event.step), kDoubt, color);
      case EventKind::Note:
        return toned(fmt::format("note {}{}", event.name, event.meta.empty() ? "" : " " + event.meta), kFaint, color);
      case EventKind::Dropped:
        return toned(fmt::format("{} events dropped: {}", value_of(event), event.name), kBad, color);
    }
    return "";
  }

  // "softmax(dim=-1) = float32[...]": of the module that it is shown in, else with its path.
  std::string operation_text(const Event& event) const {
    const compare::Operation operation = compare::read_operation(event);
    std::string text = toned(operation.name, kName, output_.color);
    if (!operation.args.empty()) text += fmt::format("({})", operation.args);
    if (event.phase == Phase::Backward) text = fmt::format("backward of {}: {}", shown_module(event), text);
    text += fmt::format(" = {}", value_of(event));
    return operation.text.empty() ? text : text + toned("  " + operation.text, kFaint, output_.color);
  }

  static std::string shown_module(const Event& event) { return event.scope.empty() ? "the program" : event.scope; }

  std::string value_of(const Event& event) const {
    if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) return tensor_text(*tensor, output_.color);
    const auto* number = std::get_if<double>(&event.value);
    const bool is_bad = number && !std::isfinite(*number);
    return toned(value_text(event.value, 200), is_bad ? kBad : Tone::Plain, output_.color);
  }

  void print_json(EventId id, const Event& event, std::size_t depth) {
    std::string text;
    JsonWriter json(text);
    json.begin_object()
        .key("writer")
        .text(reader_.writers()[reader_.writer_index(id)].folder)
        .key("seq")
        .number(event.seq);
    json.key("time_ns")
        .number(event.time_ns)
        .key("thread")
        .number(event.thread)
        .key("depth")
        .number(static_cast<std::uint64_t>(depth));
    json.key("kind").text(to_string(event.kind)).key("name").text(event.name);
    json.key("step").number(event.step).key("call").number(event.call).key("site").text(event.site);
    json.key("scope")
        .text(event.scope)
        .key("class")
        .text(event.cls)
        .key("io")
        .text(event.io_word())
        .key("phase")
        .text(event.phase_word());
    json.key("root")
        .text(event.root)
        .key("task")
        .text(event.task)
        .key("meta")
        .raw(event.meta.empty() ? "{}" : event.meta);
    const bool is_tensor = std::holds_alternative<TensorRecord>(event.value);
    if (!std::holds_alternative<std::monostate>(event.value))
      write_value(json.key(is_tensor ? "tensor" : "value"), event.value);
    json.end_object();
    print_text((std::exchange(is_first_, false) ? "" : ",\n") + text);
  }

  const Reader& reader_;
  const TreeOptions& options_;
  const Output& output_;
  const StepRange steps_;
  simdjson::dom::parser parser_;
  std::map<std::pair<std::uint64_t, std::string>, Stack> stacks_;                               // by thread and task
  std::map<std::tuple<std::uint64_t, std::string, std::string, std::string>, Tensor> tensors_;  // thread … name
  std::string other_;                                                                           // of the change at hand
  std::optional<std::int64_t> start_ns_;
  bool is_first_ = true;
};

}  // namespace

Action prepare_tree(CLI::App& app) {
  auto options = std::make_shared<TreeOptions>();
  app.add_option("run", options->run, "A run, or a folder of runs: then the newest")->required();
  app.add_option("--function", options->function,
                 "Only what happened in this function or module (a pattern; its last part is enough)");
  app.add_option("--variable", options->variable, "Only values and changes of this name (a pattern)");
  app.add_option("--line", options->line, "Only what happened there: 12, file.py or file.py:12");
  app.add_option("--step", options->steps, "A step, or a range of steps like 2:5");
  app.add_option("--rank", options->rank, "Only this rank");
  app.add_option("--since", options->since, "Only from this time on, in seconds after the first event");
  app.add_option("--until", options->until, "Only up to this time, in seconds after the first event");
  return [options](const Output& output) {
    const Reader reader = open_run(options->run);
    warn_of_problems(reader);
    TreePrinter(reader, *options, output).print_all();
    return kFine;
  };
}

}  // namespace tenscope::cli
