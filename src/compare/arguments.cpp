#include "compare/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tenscope::compare {
namespace {

bool is_argument(const Item& item, const Interner& interner) {
  if (item.io == Io::Input || item.io == Io::GradInput) return true;
  return is_changed_input(interner.text(item.name), interner.text(item.scope), item.io);
}

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

TextId ArgumentNames::tail(const Item& item, Naming naming) {
  const Names* found = naming == Naming::AsRecorded ? nullptr : names(item);
  if (found == nullptr) return item.tail;
  return naming == Naming::ByName ? found->by_name : found->by_position;
}

TextId ArgumentNames::argument(const Item& item) {
  const Names* found = names(item);
  return found == nullptr ? 0 : found->argument;
}

bool ArgumentNames::takes(const Item& item, TextId argument) const {
  const int node = tree_.find(item.root, item.scope);
  if (node < 0) return false;
  const std::vector<TextId>& arguments = tree_.nodes[static_cast<std::size_t>(node)].arguments;
  return std::ranges::find(arguments, argument) != arguments.end();
}

const ArgumentNames::Names* ArgumentNames::names(const Item& item) {
  if (item.root == 0 || !is_argument(item, interner_)) return nullptr;
  const int node = tree_.find(item.root, item.scope);
  if (node < 0) return nullptr;
  const std::vector<TextId>& arguments = tree_.nodes[static_cast<std::size_t>(node)].arguments;
  if (arguments.empty()) return nullptr;
  const auto [place, is_new] = known_.try_emplace((static_cast<std::uint64_t>(node) << 32) | item.tail);
  if (is_new) place->second = make_names(item, arguments);
  return &place->second;
}

// "input.3.0": what it is, which argument, and where in it.
ArgumentNames::Names ArgumentNames::make_names(const Item& item, const std::vector<TextId>& arguments) {
  const std::string_view tail = interner_.text(item.tail);
  const auto first_dot = tail.find('.');
  const std::string_view what = tail.substr(0, first_dot);
  const std::string_view behind = first_dot == std::string_view::npos ? std::string_view{} : tail.substr(first_dot + 1);
  const auto second_dot = behind.find('.');
  const std::string_view given = behind.substr(0, second_dot);
  const std::string_view rest = second_dot == std::string_view::npos ? std::string_view{} : behind.substr(second_dot);
  if (const auto position = number(given)) {
    if (*position >= arguments.size()) return {item.tail, item.tail, 0};
    const TextId name = arguments[*position];
    return {interner_.text(fmt::format("{}.{}{}", what, interner_.text(name), rest)), item.tail, name};
  }
  const TextId name = interner_.text(given);
  const auto found = std::ranges::find(arguments, name);
  if (found == arguments.end()) return {item.tail, item.tail, name};
  return {item.tail, interner_.text(fmt::format("{}.{}{}", what, found - arguments.begin(), rest)), name};
}

}  // namespace tenscope::compare
