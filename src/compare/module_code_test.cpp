#include "compare/module_code.hpp"

#include <gtest/gtest.h>

#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

constexpr const char* kModel =
    "class Base:\n"
    "    def forward(self, x):\n"
    "        return x\n"
    "\n"
    "class Net(Base):\n"
    "    def __init__(self):\n"
    "        self.eps = 1\n"
    "\n"
    "class Other:\n"
    "    y = 1\n";

class ModuleCode : public ::testing::Test {
 protected:
  CodeComparison comparison_{[this](int run, const std::string& fingerprint) {
    const auto found = texts_.find(fingerprint);
    if (found == texts_.end()) throw Error(ErrorCode::NotFound, "no such text in run " + std::to_string(run));
    return found->second;
  }};
  std::map<std::string, std::string> texts_;

  CodeOfModule net(const std::string& fingerprint, const std::string& text, const std::string& site = "model.py:2") {
    texts_[fingerprint] = text;
    const KeptFile file{.file = "model.py", .fingerprint = fingerprint, .left_out = {}};
    return {.cls = "Net",
            .class_path = "model:Net",
            .class_file = file,
            .forward = {site, file},
            .wrappers = {},
            .without_source = {},
            .has_sources = true};
  }

  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  }
};

TEST_F(ModuleCode, OneTextIsTheSame) {
  const DiffCode code = comparison_.compare(net("a", kModel), net("a", kModel));
  EXPECT_EQ(code.source, DiffSource::Same);
  EXPECT_TRUE(code.lines.empty() && code.elsewhere.empty() && code.why_unknown.empty());
  EXPECT_EQ(code.site_a, "model.py:2");
}

TEST_F(ModuleCode, ShowsTheClassAndTheOneThatHasItsForward) {
  const DiffCode own = comparison_.compare(net("a", kModel), net("b", replaced(kModel, "eps = 1", "eps = 2")));
  EXPECT_EQ(own.source, DiffSource::Differs);
  EXPECT_EQ(own.lines,
            (std::vector<std::string>{"--- model.py", "+++ model.py", "@@ -5,3 +5,3 @@", " class Net(Base):",
                                      "     def __init__(self):", "-        self.eps = 1", "+        self.eps = 2"}));
  const DiffCode base = comparison_.compare(net("a", kModel), net("c", replaced(kModel, "return x", "return -x")));
  EXPECT_EQ(base.source, DiffSource::Differs);
  EXPECT_EQ(base.lines.back(), "+        return -x");
  EXPECT_TRUE(base.elsewhere.empty());
}

TEST_F(ModuleCode, OtherClassesAreNamedAndNotShown) {
  const CodeOfModule moved = net("b", "import torch\n" + replaced(kModel, "y = 1", "y = 2"), "model.py:3");
  const DiffCode code = comparison_.compare(net("a", kModel), moved);
  EXPECT_EQ(code.source, DiffSource::Same);
  EXPECT_TRUE(code.lines.empty());
  EXPECT_EQ(code.elsewhere, (std::vector<std::string>{"Other", "<module>"}));
}

TEST_F(ModuleCode, WhatIsNotKnownIsNotTheSame) {
  const CodeOfModule known = net("a", kModel);
  CodeOfModule old = known, cut = known, gone = known, unnamed = known;
  old.has_sources = false;
  old.class_file = {};
  cut.class_file = {.file = "model.py", .fingerprint = {}, .left_out = "it is larger than 5 bytes"};
  gone.class_file.fingerprint = "z";
  unnamed.class_path = "model:Elsewhere";
  const std::vector<std::pair<CodeOfModule, std::string>> cases = {
      {old, "the second run keeps no sources"},
      {cut, "the second run does not keep model.py: it is larger than 5 bytes"},
      {gone, "no such text in run 1"},
      {unnamed, "the class Elsewhere was not found in what the second run keeps of model.py"}};
  for (const auto& [other, why] : cases) {
    const DiffCode code = comparison_.compare(known, other);
    EXPECT_EQ(code.source, DiffSource::Unknown);
    EXPECT_EQ(code.why_unknown, why);
  }
  EXPECT_EQ(comparison_.compare(old, old).why_unknown, "neither run keeps sources");
}

TEST_F(ModuleCode, OtherClassesAreNotComparedLineByLine) {
  const auto code_of_class = [&](const std::string& name, const std::string& file, const std::string& text) {
    CodeOfModule code = net(name, text);
    code.class_path = "lib:" + name;
    code.class_file.file = code.forward.file.file = file;
    code.forward.site.clear();
    return code;
  };
  const std::string body = ":\n    # Text.\n\n    # More.\n    def forward(self, x):\n        return x\n";
  const CodeOfModule gelu = code_of_class("Gelu", "model.py", "class Gelu" + body);
  const CodeOfModule relu =
      code_of_class("Relu", "/lib/site-packages/torch/nn.py",
                    "class Relu:\n    def __init__(self):\n        pass\n\n    def extra_repr(self):\n"
                    "        return ''\n\n    def forward(self, x):\n        return x.relu()\n");
  const DiffCode other = comparison_.compare(gelu, relu);
  EXPECT_EQ(other.source, DiffSource::Another);
  EXPECT_TRUE(other.lines.empty() && other.elsewhere.empty());
  EXPECT_EQ(other.site_a, "model.py:5");
  // One that was renamed, and moved to a library, is compared.
  const DiffCode moved =
      comparison_.compare(gelu, code_of_class("Gelu2", "/lib/site-packages/lib/act.py", "class Gelu2" + body));
  EXPECT_EQ(moved.source, DiffSource::Differs);
  EXPECT_EQ(moved.lines[1], "+++ lib/act.py");
}

TEST_F(ModuleCode, AForwardThatIsNotKnownIsNotTheSame) {
  const CodeOfModule known = net("a", kModel);
  CodeOfModule cut = known, elsewhere = known;
  cut.forward.file = {.file = "base.py", .fingerprint = {}, .left_out = "it is larger than 5 bytes"};
  EXPECT_EQ(comparison_.compare(known, cut).why_unknown,
            "the second run does not keep base.py, which its forward is in: it is larger than 5 bytes");
  elsewhere.forward.site = "model.py:4";
  EXPECT_EQ(comparison_.compare(elsewhere, known).why_unknown,
            "its forward was not found in what the first run keeps of model.py");
  // A function that was put there.
  CodeOfModule one = net("f", "def go(self, x):\n    return x\n" + std::string(kModel)),
               two = net("g", "def go(self, x):\n    return -x\n" + std::string(kModel));
  one.forward.site = two.forward.site = "model.py:1";
  EXPECT_EQ(comparison_.compare(one, two).lines.back(), "+    return -x");
}

// A forward of the class in one run, and in the other one from another file, or another method.
TEST_F(ModuleCode, AForwardFromAnotherPlaceIsNotTheSame) {
  const std::string own =
      "class Net:\n    def forward(self, x):\n        return x\n\n    def other(self, x):\n        return -x\n";
  CodeOfModule as_written = net("a", own), replaced = as_written, method = as_written;
  texts_["p"] = "def patched(self, x):\n    return -x\n\ndef forward(self, x):\n    return x\n";
  replaced.forward = {"patch.py:1", {.file = "patch.py", .fingerprint = "p", .left_out = {}}};
  const DiffCode code = comparison_.compare(as_written, replaced);
  EXPECT_EQ(code.source, DiffSource::Differs);
  EXPECT_TRUE(code.is_forward_elsewhere);
  EXPECT_EQ(code.site_b, "patch.py:1");
  EXPECT_EQ(code.lines, (std::vector<std::string>{"--- model.py", "+++ patch.py", "@@ -2,2 +1,2 @@",
                                                  "-def forward(self, x):", "-    return x",
                                                  "+def patched(self, x):", "+    return -x"}));
  EXPECT_EQ(comparison_.compare(replaced, as_written).source, DiffSource::Differs);
  EXPECT_EQ(comparison_.compare(replaced, replaced).source, DiffSource::Same);
  replaced.forward.site = "patch.py:4";  // of the same lines
  const DiffCode moved = comparison_.compare(as_written, replaced);
  EXPECT_TRUE(moved.source == DiffSource::Differs && moved.is_forward_elsewhere && moved.lines.empty());
  method.forward.site = "model.py:5";
  const DiffCode other = comparison_.compare(as_written, method);
  EXPECT_EQ(other.source, DiffSource::Differs);
  EXPECT_EQ(other.lines.back(), "+        return -x");
  replaced.without_source = "builtins.abs";
  EXPECT_EQ(comparison_.compare(as_written, replaced).why_unknown,
            "its forward runs builtins.abs in the second run, which has no source");
}

// A library's class, of whose forward no place is recorded, and which inherits it; a lambda in its place.
TEST_F(ModuleCode, AForwardThatTheClassInheritsHasNoLinesToCompare) {
  CodeOfModule library = net("a", kModel), replaced = library;
  library.forward = {};
  replaced.forward = {"patch.py:2", {.file = "patch.py", .fingerprint = "p", .left_out = {}}};
  texts_["p"] = "import model\nmodel.Net.forward = lambda self, x: (\n    -x)\nprint(1)\n";
  const DiffCode code = comparison_.compare(library, replaced);
  EXPECT_TRUE(code.source == DiffSource::Differs && code.is_forward_elsewhere);
  EXPECT_EQ(code.removed, 0U);
  EXPECT_EQ(code.added, 2U);
  EXPECT_EQ(code.lines.back(), "+    -x)");
}

TEST_F(ModuleCode, FunctionsAroundTheForwardAreCompared) {
  const CodeOfModule bare = net("a", kModel);
  texts_["d"] = "def twice(f):\n    def call(x):\n        return f(f(x))\n    return call\n";
  texts_["e"] = "def twice(f):\n    def call(x):\n        return f(x)\n    return call\n";
  const auto wrapped = [&](const std::string& fingerprint) {
    CodeOfModule code = bare;
    code.wrappers = {{"deco.py:2", {.file = "deco.py", .fingerprint = fingerprint, .left_out = {}}}};
    return code;
  };
  EXPECT_EQ(comparison_.compare(wrapped("d"), wrapped("d")).source, DiffSource::Same);
  EXPECT_EQ(comparison_.compare(wrapped("d"), wrapped("e")).lines.back(), "     return call");
  const DiffCode one = comparison_.compare(bare, wrapped("d"));
  EXPECT_EQ(one.source, DiffSource::Differs);
  EXPECT_TRUE(one.lines.empty() && one.wrappers_a.empty());
  EXPECT_EQ(one.wrappers_b, std::vector<std::string>{"deco.py:2"});
  EXPECT_EQ(comparison_.compare(wrapped("d"), wrapped("")).source, DiffSource::Unknown);
}

TEST_F(ModuleCode, LongChangesAreCut) {
  std::string a = "class Net:\n", b = "class Net:\n";
  for (int i = 0; i < 100; ++i) {
    a += "    a" + std::to_string(i) + " = 1\n";
    b += "    b" + std::to_string(i) + " = 1\n";
  }
  const DiffCode code = comparison_.compare(net("a", a), net("b", b));
  EXPECT_EQ(code.lines.size(), 30U);
  EXPECT_EQ(code.removed + code.added, 200U);
  EXPECT_EQ(code.left_out, 204U - 30U);  // two names of files, a place, a line that stays
}

TEST_F(ModuleCode, AttributesAreComparedAsValues) {
  Interner interner;
  const auto node = [&](const char* attributes) {
    ModuleNode node;
    node.root = interner.text("Net#0");
    node.path = "norm";
    node.description = interner.text(std::string(R"({"arguments":[],"attributes":)") + attributes + "}");
    return node;
  };
  const auto found = compare_attributes(node(R"({"eps":1e-05,"p":1,"act":"relu","dim":[2],"gone":null,"config.a":1})"),
                                        node(R"({"eps":1e-06,"p":1.0,"act":"relu","dim":[3],"more":true})"), interner);
  std::vector<std::string> texts;
  for (const DiffAttribute& one : found) texts.push_back(one.name + " " + one.a + " " + one.b);
  EXPECT_EQ(texts, (std::vector<std::string>{"eps 1e-05 1e-06", "dim [2] [3]", "gone null ", "more  true"}));
  ModuleNode old = node("{}");
  old.description = 0;
  EXPECT_TRUE(compare_attributes(old, node(R"({"eps":1})"), interner).empty());
}

TEST_F(ModuleCode, AttributesThatAreChangedLaterDifferFromThatCallOn) {
  Interner interner;
  const auto node = [&](std::initializer_list<std::tuple<int, int, const char*>> changes) {
    ModuleNode node;
    node.root = interner.text("Net#0");
    node.path = "drop";
    node.description = interner.text(R"({"arguments":[],"attributes":{"p":0.1,"mode":"a","old":1}})");
    for (const auto& [step, call, meta] : changes) node.changes.push_back({step, call, interner.text(meta)});
    return node;
  };
  const auto differences = [&](const ModuleNode& a, const ModuleNode& b) {
    std::vector<std::string> texts;
    for (const DiffAttribute& one : compare_attributes(a, b, interner))
      texts.push_back(one.name + " " + one.a + " " + one.b + " " + std::to_string(one.step) + " " +
                      std::to_string(one.call));
    return texts;
  };
  const ModuleNode still = node({});
  const ModuleNode once = node({{5, 10, R"({"training":true,"changed":{"p":0.5}})"}});
  EXPECT_TRUE(differences(once, once).empty());
  EXPECT_EQ(differences(still, once), (std::vector<std::string>{"p 0.1 0.5 5 10"}));
  EXPECT_EQ(differences(once, still), (std::vector<std::string>{"p 0.5 0.1 5 10"}));
  // The same change one call later, an attribute that goes, and one that comes back: told once, where they part.
  const ModuleNode later =
      node({{5, 11, R"({"changed":{"p":0.5},"gone":["old"]})"}, {6, 12, R"({"changed":{"old":1}})"}});
  EXPECT_EQ(differences(once, later), (std::vector<std::string>{"p 0.5 0.1 5 10", "old 1  5 11"}));
}

}  // namespace
}  // namespace tenscope::compare
