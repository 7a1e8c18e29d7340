#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "compare/frames.hpp"
#include "compare/module_tree.hpp"
#include "compare/run_end.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

// A tree of modules that were all called, by their paths and classes; the root first, parents before their children.
ModuleTree tree_of(Interner& interner, std::initializer_list<std::pair<std::string, std::string_view>> modules) {
  Timeline timeline;
  timeline.lanes.emplace_back();
  for (const auto& [path, cls] : modules) {
    Item item;
    item.kind = EventKind::Enter;
    item.root = interner.text("Net#0");
    item.scope = interner.text(path);
    item.cls = interner.text(cls);
    timeline.lanes[0].items.push_back(item);
  }
  return build_module_tree(timeline, interner);
}

std::string partner(const ModuleTree& a, const ModuleTree& b, const ModuleMatch& match, std::string_view path) {
  for (std::size_t i = 0; i < a.nodes.size(); ++i)
    if (a.nodes[i].path == path)
      return match.to_b[i] < 0 ? "none" : b.nodes[static_cast<std::size_t>(match.to_b[i])].path;
  return "no such module";
}

TEST(ModuleMatch, SeesThroughWrappersInEitherRun) {
  Interner interner;
  const ModuleTree plain =
      tree_of(interner, {{"", "GPT"}, {"embed", "Embedding"}, {"block", "Block"}, {"block.fc", "Linear"}});
  const ModuleTree wrapped = tree_of(interner, {{"", "Compiled"},
                                                {"a", "Wrapper"},
                                                {"a.b", "GPT"},
                                                {"a.b.embed", "Embedding"},
                                                {"a.b.block", "Compiled"},
                                                {"a.b.block.c", "Block"},
                                                {"a.b.block.c.fc", "Linear"}});
  const ModuleMatch there = match_modules(plain, wrapped, {}), back = match_modules(wrapped, plain, {});
  EXPECT_EQ(partner(plain, wrapped, there, ""), "a.b");
  EXPECT_EQ(partner(plain, wrapped, there, "embed"), "a.b.embed");
  EXPECT_EQ(partner(plain, wrapped, there, "block"), "a.b.block.c");
  EXPECT_EQ(partner(plain, wrapped, there, "block.fc"), "a.b.block.c.fc");
  EXPECT_EQ(partner(wrapped, plain, back, "a.b"), "");
  EXPECT_EQ(partner(wrapped, plain, back, "a.b.block.c.fc"), "block.fc");
  EXPECT_EQ(partner(wrapped, plain, back, "a"), "none");
}

TEST(ModuleMatch, AModuleWithOneChildIsNoWrapper) {
  Interner interner;
  const ModuleTree a = tree_of(interner, {{"", "Net"}, {"body", "Body"}, {"body.fc", "Linear"}});
  const ModuleMatch match = match_modules(a, a, {});
  for (const char* path : {"", "body", "body.fc"}) EXPECT_EQ(partner(a, a, match, path), path);
}

TEST(ModuleMatch, AMapThatFitsNothingNamesTheNearest) {
  Interner interner;
  const ModuleTree a = tree_of(interner, {{"", "Net"}, {"encoder", "Encoder"}}),
                   b = tree_of(interner, {{"", "Net"}, {"decoder", "Decoder"}});
  const auto message = [&](const std::string& rule) -> std::string {
    try {
      match_modules(a, b, {rule});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("encodr=decoder").find("did you mean 'encoder'"), std::string::npos) << message("encodr=decoder");
  EXPECT_NE(message("encoder=decodr").find("did you mean 'decoder'"), std::string::npos) << message("encoder=decodr");
  EXPECT_EQ(message("encoder=decoder"), "");
}

TEST(Frames, ARaiseEndsTheCallsInside) {
  Interner interner;
  const ModuleTree tree = tree_of(interner, {{"", "Net"}, {"fc", "Linear"}});
  Frames frames(tree);
  frames.enter({0, 0}, 7);
  frames.enter({1, 0}, 7);
  const int inner = frames.of({1, 0}), outer = frames.of({0, 0});
  EXPECT_TRUE(frames.is_within(inner, outer));
  EXPECT_EQ(frames.exit(0, 7), outer);  // the inner one's exit was not recorded
  EXPECT_EQ(frames.exit(1, 7), kProgram);
  frames.enter({1, 1}, 7);
  EXPECT_EQ(frames[frames.of({1, 1})].parent, kProgram);
  // Numbers of calls beyond 32 bits are told apart.
  EXPECT_NE(frames.of({0, std::int64_t{1} << 32}), frames.of({1, 0}));
}

TEST(RunEnd, AnExceptionThatWasCaughtIsNoEnd) {
  Interner interner;
  const auto item = [&](EventKind kind, std::string_view text = {}, std::string_view name = {}) {
    Item item;
    item.kind = kind;
    item.text = interner.text(text);
    item.name = interner.text(name);
    return item;
  };
  Lane lane;
  lane.items = {item(EventKind::Enter), item(EventKind::Exit, "ValueError: no")};
  EXPECT_EQ(interner.text(exception_of(lane, interner)), "ValueError: no");
  lane.items.push_back(item(EventKind::Value));
  EXPECT_EQ(exception_of(lane, interner), 0U);
  lane.items.push_back(item(EventKind::Note, "KeyError: 'x'", kExceptionNote));
  EXPECT_EQ(interner.text(exception_of(lane, interner)), "KeyError: 'x'");
}

}  // namespace
}  // namespace tenscope::compare
