#include "compare/arguments.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenscope::compare {
namespace {

class Arguments : public ::testing::Test {
 protected:
  Arguments() {
    Item enter;
    enter.kind = EventKind::Enter;
    enter.root = interner_.text("Model#0");
    enter.scope = interner_.text("attn");
    enter.text = interner_.text(R"({"training":true,"arguments":["x","mask","scale"]})");
    Timeline timeline;
    timeline.lanes.resize(1);
    timeline.lanes[0].items.push_back(enter);
    tree_ = build_module_tree(timeline, interner_);
  }

  std::string tail(const std::string& recorded, Naming naming, Io io = Io::Input) {
    return std::string(interner_.text(names_.tail(item(recorded, io), naming)));
  }

  Item item(const std::string& tail, Io io = Io::Input) {
    Item item;
    item.io = io;
    item.value = ValueKind::Tensor;
    item.root = interner_.text("Model#0");
    item.scope = interner_.text("attn");
    item.tail = interner_.text(tail);
    item.name = interner_.text("attn." + tail);
    return item;
  }

  Interner interner_;
  ModuleTree tree_;
  ArgumentNames names_{tree_, interner_};
};

TEST_F(Arguments, AreTheSameByPositionAndByKeyword) {
  const std::vector<std::pair<std::string, std::string>> same = {
      {"input.0", "input.x"}, {"input.1.0", "input.mask.0"}, {"grad_input.2", "grad_input.scale"}};
  for (const auto& [by_position, by_name] : same) {
    const Io io = by_position.starts_with("grad") ? Io::GradInput : Io::Input;
    for (const std::string& recorded : {by_position, by_name}) {
      EXPECT_EQ(tail(recorded, Naming::ByName, io), by_name);
      EXPECT_EQ(tail(recorded, Naming::ByPosition, io), by_position);
      EXPECT_EQ(tail(recorded, Naming::AsRecorded, io), recorded);
    }
  }
  EXPECT_EQ(tail("input.1.after", Naming::ByName, Io::Output), "input.mask.after");
}

TEST_F(Arguments, AreLeftAloneWhereTheSignatureDoesNotNameThem) {
  EXPECT_EQ(tail("input.7", Naming::ByName), "input.7");
  EXPECT_EQ(tail("input.extra", Naming::ByPosition), "input.extra");
  EXPECT_EQ(tail("output.1", Naming::ByName, Io::Output), "output.1");
  EXPECT_EQ(names_.argument(item("input.7")), 0U);
  EXPECT_TRUE(names_.takes(item("input.0"), interner_.text("mask")));
  EXPECT_FALSE(names_.takes(item("input.0"), interner_.text("cache")));
}

}  // namespace
}  // namespace tenscope::compare
