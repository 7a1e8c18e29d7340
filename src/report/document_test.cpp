#include "report/document.hpp"

#include <gtest/gtest.h>

namespace tenscope::report {
namespace {

Document small() {
  Document out(6);
  out.headline("differs: <b>", Tone::BoldRed);
  out.field("why", "a & b");
  out.fields("", {"more", "\033[2J"});
  out.code("see", "tenscope show  x");
  out.section("w\nx", kHeading);
  out.line("one\n  two");
  out.bars("errors", {{"0", 1200}, {"1e-3", 300}});
  Table table({{"name"}, {"count", Align::Right}});
  table.add({"<i>", Cell("3", kBad)});
  out.table(std::move(table));
  return out;
}

TEST(Document, is_text) {
  EXPECT_EQ(small().text(false),
            "differs: <b>\n"
            "  why    a & b\n"
            "         more\n"
            "         \\x1b[2J\n"
            "  see    tenscope show  x\n"
            "\nw\\nx\n"
            "  one\n"
            "    two\n"
            "    errors\n"
            "             0          1,200 ██████████████████████████████\n"
            "          1e-3            300 ████████\n"
            "name  count\n"
            "<i>       3\n");
  EXPECT_TRUE(small().text(true).starts_with("\033[1;31mdiffers: <b>\033[0m\n"));
}

TEST(Document, is_html) {
  EXPECT_EQ(small().html(),
            "<div class=\"tenscope\">"
            "<p class=\"tenscope-headline\"><span class=\"tenscope-bad\">differs: &lt;b&gt;</span></p>"
            "<table class=\"tenscope-fields\"><tr><th>why</th><td><div>a &amp; b</div><div>more</div>"
            "<div>\\x1b[2J</div></td></tr>"
            "<tr><th>see</th><td><code>tenscope show  x</code></td></tr></table>"
            "<p class=\"tenscope-heading\"><span class=\"tenscope-head\">w\\nx</span></p>"
            "<p class=\"tenscope-below\">one</p><p class=\"tenscope-below\">two</p>"
            "<table class=\"tenscope-bars tenscope-below\"><caption>errors</caption>"
            "<tr><th>0</th><td>1,200</td><td><div style=\"width:100.0%\"></div></td></tr>"
            "<tr><th>1e-3</th><td>300</td><td><div style=\"width:25.0%\"></div></td></tr></table>"
            "<div class=\"tenscope-wide\"><table class=\"tenscope-table\"><thead><tr><th>name</th>"
            "<th class=\"tenscope-right\">count</th></tr></thead><tbody><tr><td>&lt;i&gt;</td>"
            "<td class=\"tenscope-right\"><span class=\"tenscope-bad\">3</span></td></tr></tbody></table></div></div>");
}

TEST(Document, html_is_bounded) {
  Document out;
  out.field("at", "the name " + std::string(5000, 'x') + " differs");
  EXPECT_LT(out.html().size(), 400U);
  EXPECT_NE(out.html().find("x differs</div>"), std::string::npos);
  Table table({{"name"}});
  for (int i = 0; i < 100'000; ++i) table.add({std::string(1000, 'x')});
  const std::string html = table.html();
  EXPECT_LT(html.size(), 100'000U);
  EXPECT_NE(html.find("… 99800 more"), std::string::npos);
}

}  // namespace
}  // namespace tenscope::report
