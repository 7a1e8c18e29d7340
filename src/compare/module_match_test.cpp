#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "compare/frames.hpp"
#include "compare/module_tree.hpp"
#include "compare/moved_parameters.hpp"
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

// The events of a made-up run with parameters and first calls, told by fingerprints.
class Story {
 public:
  explicit Story(Interner& interner) : interner_(interner) { timeline_.lanes.emplace_back(); }

  // A module that was called; `weight` 0: it has none.
  Story& module(std::string_view path, std::string_view cls, std::uint64_t weight = 0, std::uint64_t input = 0,
                std::uint64_t output = 0, std::string_view parameter = "weight") {
    if (weight != 0) add(path, cls, EventKind::Value, Io::Param, Phase::Init, parameter, weight);
    add(path, cls, EventKind::Enter, Io::None, Phase::Forward, "", 0);
    if (input != 0) add(path, cls, EventKind::Value, Io::Input, Phase::Forward, "input.0", input);
    if (output != 0) add(path, cls, EventKind::Value, Io::Output, Phase::Forward, "output", output);
    return *this;
  }
  const Timeline& timeline() const { return timeline_; }
  ModuleTree tree() { return build_module_tree(timeline_, interner_); }

 private:
  void add(std::string_view path, std::string_view cls, EventKind kind, Io io, Phase phase, std::string_view tail,
           std::uint64_t content) {
    Item item;
    item.kind = kind;
    item.io = io;
    item.phase = phase;
    item.root = interner_.text("Net#0");
    item.scope = interner_.text(path);
    item.cls = interner_.text(cls);
    item.tail = item.parameter = interner_.text(tail);
    item.value = content != 0 ? ValueKind::Tensor : ValueKind::None;
    item.fingerprint.low = content;
    item.shape = interner_.text(std::to_string(io == Io::Param ? 0 : content));  // what is of another shape is another
    timeline_.lanes[0].items.push_back(item);
  }

  Interner& interner_;
  Timeline timeline_;
};

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

TEST(ModuleMatch, NumbersOfParametersSayMoreThanNames) {
  Interner interner;
  const ModuleTree a = Story(interner)
                           .module("", "Net")
                           .module("attn", "Attention")
                           .module("attn.q", "Linear", 1)
                           .module("attn.k", "Linear", 2)
                           .module("norm", "LayerNorm", 3)
                           .tree();
  // The names of two are exchanged, one is wrapped by a class of the other's name, one stands in a group.
  const ModuleTree b = Story(interner)
                           .module("", "Net")
                           .module("group", "Group")
                           .module("group.attn", "Linear")
                           .module("group.attn.inner", "Attention")
                           .module("group.attn.inner.k", "Linear", 1)
                           .module("group.attn.inner.q", "Linear", 2)
                           .module("group.norm", "Norm", 3)
                           .tree();
  const ModuleMatch match = match_modules(a, b, {});
  EXPECT_EQ(partner(a, b, match, ""), "");
  EXPECT_EQ(partner(a, b, match, "attn"), "group.attn.inner");
  EXPECT_EQ(partner(a, b, match, "attn.q"), "group.attn.inner.k");
  EXPECT_EQ(partner(a, b, match, "attn.k"), "group.attn.inner.q");
  EXPECT_EQ(partner(a, b, match, "norm"), "group.norm");
}

TEST(ModuleMatch, AWeightThatIsSharedMakesNoModuleAnother) {
  Interner interner;
  const ModuleTree a = Story(interner)
                           .module("", "Net")
                           .module("tokens", "Embedding", 1, 10, 11)
                           .module("head", "Linear", 0, 12, 13)
                           .tree();
  const ModuleTree b = Story(interner)
                           .module("", "Net")
                           .module("tokens", "Embedding", 0, 10, 11)
                           .module("head", "Linear", 1, 12, 13)
                           .tree();
  const ModuleMatch match = match_modules(a, b, {});
  EXPECT_EQ(partner(a, b, match, "tokens"), "tokens");
  EXPECT_EQ(partner(a, b, match, "head"), "head");
}

TEST(ModuleMatch, WhatAModuleMakesOfItsInputSaysMoreThanItsName) {
  Interner interner;
  const ModuleTree a =
      Story(interner).module("", "Net").module("act0", "GELU", 0, 1, 2).module("act1", "GELU", 0, 2, 3).tree();
  const ModuleTree b =
      Story(interner).module("", "Net").module("act1", "GELU", 0, 1, 2).module("act2", "GELU", 0, 2, 3).tree();
  const ModuleMatch match = match_modules(a, b, {});
  EXPECT_EQ(partner(a, b, match, "act0"), "act1");
  EXPECT_EQ(partner(a, b, match, "act1"), "act2");
}

TEST(ModuleMatch, SomethingElseUnderAFreeNameIsNoPartner) {
  Interner interner;
  const ModuleTree a = Story(interner).module("", "Net").module("q", "Linear", 1, 5, 6).tree();
  Story story(interner);  // the code of q stands in the module around it, and its name is that of an Identity
  story.module("", "Net", 1, 0, 0, "q_weight").module("q", "Identity", 0, 5, 5);
  const ModuleTree b = story.tree();
  EXPECT_EQ(partner(a, b, match_modules(a, b, {}), "q"), "none");
}

TEST(MovedParameters, AreKnownByTheirNumbers) {
  Interner interner;
  Story plain(interner), inlined(interner);
  plain.module("", "Net").module("fc", "Linear", 1).module("out", "Linear", 2).module("last", "Linear", 2);
  inlined.module("", "Net", 1, 0, 0, "fc_weight").module("other", "Head", 7);
  const ModuleTree a = plain.tree(), b = inlined.tree();
  const MovedParameters moved =
      find_moved_parameters(plain.timeline(), inlined.timeline(), a, b, match_modules(a, b, {}));
  ASSERT_EQ(moved.to_b.size(), 1U);  // two have the same numbers: they do not tell
  EXPECT_EQ(a.nodes[static_cast<std::size_t>(moved.to_b.begin()->first.node)].path, "fc");
  EXPECT_EQ(interner.text(moved.to_b.begin()->second.name), "fc_weight");
}

TEST(ModuleMatch, AMapThatFitsNothingNamesTheNearest) {
  Interner interner;
  const ModuleTree a = tree_of(interner, {{"", "Net"}, {"encoder", "Encoder"}}),
                   b = tree_of(interner, {{"", "Net"}, {"decoder", "Decoder"}});
  const auto message = [&](const std::string& rule) -> std::string {
    const ModuleMatch match = match_modules(a, b, {rule});
    return match.unused.empty() ? "" : match.unused[0].reason;
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

TEST(Frames, CodeOfAModuleOfOneRunAloneIsThatAroundIt) {
  Interner interner;
  const ModuleTree tree = tree_of(interner, {{"", "Net"}, {"wrapper", "Wrapper"}, {"wrapper.fc", "Linear"}});
  Frames frames(tree, {0, -1, 1});
  frames.enter({0, 0}, 7);
  frames.enter({1, 0}, 7);
  frames.enter({2, 0}, 7);
  EXPECT_EQ(frames[frames.of({2, 0})].parent, frames.of({0, 0}));
  EXPECT_EQ(frames.exit(2, 7), frames.of({2, 0}));
  EXPECT_EQ(frames.exit(1, 7), kProgram);  // the call around it goes on
  EXPECT_EQ(frames.exit(0, 7), frames.of({0, 0}));
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
