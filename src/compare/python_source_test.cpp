#include "compare/python_source.hpp"

#include <gtest/gtest.h>

namespace tenscope::compare {
namespace {

std::string text_of(const PythonSource& source, const Definition* definition) {
  if (definition == nullptr) return "nothing";
  std::string text;
  for (const std::string_view line : source.lines_of(*definition)) text.append(line).append("\n");
  return text;
}

TEST(PythonSource, FindsAClassByItsIndentation) {
  const PythonSource source(
      "import torch\n"
      "\n"
      "# before\n"
      "class A(nn.Module):\n"
      "    def forward(self, x):\n"
      "        return x\n"
      "\n"
      "    # a comment inside\n"
      "\n"
      "    scale = 2\n"
      "\n"
      "# a comment behind\n"
      "\n"
      "class AB: pass\n");
  EXPECT_EQ(
      text_of(source, source.find_class("A")),
      "class A(nn.Module):\n    def forward(self, x):\n        return x\n\n    # a comment inside\n\n    scale = 2\n");
  EXPECT_EQ(text_of(source, source.find_class("AB")), "class AB: pass\n");
  EXPECT_EQ(source.find_class("B"), nullptr);
  EXPECT_EQ(source.find("A.forward")->line, 4U);
}

TEST(PythonSource, DecoratorsBelongToTheirClass) {
  const PythonSource source(
      "x = 1\n"
      "@dataclass(\n"
      "    frozen=True,\n"
      ")\n"
      "@register\n"
      "class A:\n"
      "    y: int\n"
      "z = A\n");
  EXPECT_EQ(text_of(source, source.find_class("A")),
            "@dataclass(\n    frozen=True,\n)\n@register\nclass A:\n    y: int\n");
}

TEST(PythonSource, QualifiedNamesNest) {
  const PythonSource source(
      "class Outer:\n"
      "    class Name:\n"
      "        a = 1\n"
      "    class Other:\n"
      "        class Name:\n"
      "            a = 2\n"
      "def make():\n"
      "    class Name:\n"
      "        a = 3\n"
      "    return Name\n"
      "async def later():\n"
      "    pass\n");
  EXPECT_EQ(text_of(source, source.find_class("Outer.Name")), "    class Name:\n        a = 1\n");
  EXPECT_EQ(text_of(source, source.find_class("Outer.Other.Name")), "        class Name:\n            a = 2\n");
  EXPECT_EQ(text_of(source, source.find_class("make.<locals>.Name")), "    class Name:\n        a = 3\n");
  EXPECT_EQ(source.find_class("Name"), nullptr);
  EXPECT_NE(source.find("later"), nullptr);
}

TEST(PythonSource, StringsBracketsAndContinuedLinesAreNoStatements) {
  const PythonSource source(
      "class A:\n"
      "    '''text\n"
      "class Fake:\n"
      "'''\n"
      "    x = [\n"
      "1,\n"
      "]\n"
      "    y = 'a # b' \\\n"
      "+ \"\\\"\"  # class Comment:\n"
      "    z = f\"\"\"\n"
      "class Fake2: \\\"\"\" \"\"\"\n"
      "    w = 1\n"
      "class B: pass\n");
  EXPECT_EQ(source.find_class("A")->end, 12U);
  EXPECT_EQ(source.find_class("Fake"), nullptr);
  EXPECT_EQ(source.find_class("Fake2"), nullptr);
  EXPECT_EQ(source.find_class("B")->begin, 12U);
}

TEST(PythonSource, OfTwoClassesOfOneNameTheOneWithTheLineIsMeant) {
  const PythonSource source(
      "if old:\n"
      "    class A:\n"
      "        x = 1\n"
      "else:\n"
      "    class A:\n"
      "        x = 2\n");
  EXPECT_EQ(source.find_class("A", 2)->begin, 1U);
  EXPECT_EQ(source.find_class("A", 5)->begin, 4U);
  EXPECT_EQ(source.find_class("A")->begin, 4U);
  EXPECT_EQ(source.around(2)->begin, 1U);
  EXPECT_EQ(source.around(3), nullptr);
}

TEST(PythonSource, FindsTheFunctionThatALineIsIn) {
  const PythonSource source(
      "class A:\n"
      "    def forward(self, x):\n"
      "        def inner(y):\n"
      "            return y\n"
      "        return inner(x)\n"
      "f = lambda x: (x +\n"
      "               1)\n"
      "g = 1\n");
  EXPECT_EQ(source.function_at(1)->name, "A.forward");
  EXPECT_EQ(source.function_at(3)->name, "A.forward.inner");
  EXPECT_EQ(source.function_at(4)->name, "A.forward");
  EXPECT_EQ(source.function_at(0), nullptr);
  EXPECT_EQ(source.function_at(5), nullptr);
  EXPECT_EQ(source.lines_of(source.statement_at(5)).size(), 2U);
  EXPECT_EQ(source.lines_of(source.statement_at(7)).size(), 1U);
  EXPECT_TRUE(source.lines_of(source.statement_at(8)).empty());
}

TEST(PythonSource, TextsThatAreNoPythonDoNoHarm) {
  for (const char* text : {"", "\n", "class", "class \n", "(((", "'''", "\"", "\\", "@", "@x\n", "def f(\nclass A:\n",
                           "\t\tclass A:\n  x\n", "class A:\r\n    x = 1\r\ny = 2\r\n", "}\n)\nclass A: pass"}) {
    const PythonSource source(text);
    for (const Definition& one : source.definitions()) {
      EXPECT_LE(one.begin, one.line);
      EXPECT_LT(one.line, one.end);
      EXPECT_LE(one.end, source.lines().size());
    }
  }
  const PythonSource windows("class A:\r\n    x = 1\r\ny = 2\r\n");
  EXPECT_EQ(text_of(windows, windows.find_class("A")), "class A:\n    x = 1\n");
}

}  // namespace
}  // namespace tenscope::compare
