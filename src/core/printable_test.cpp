#include "core/printable.hpp"

#include <gtest/gtest.h>

namespace tenscope {
namespace {

TEST(Printable, writes_out_what_a_terminal_obeys) {
  EXPECT_EQ(printable("blocks.0.attn"), "blocks.0.attn");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\x1b[31mred\x07"), "\\x1b[31mred\\x07");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // a control sequence in one character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");  // what follows would be shown from the right
  EXPECT_EQ(printable("中文 é"), "中文 é");
  EXPECT_EQ(printable("\xff\xc3"), "\xff\xc3");  // no UTF-8: a terminal shows a replacement
}

TEST(Printable, lines_stay_lines) { EXPECT_EQ(printable_lines("a\n\tb\x1b"), "a\n\tb\\x1b"); }

}  // namespace
}  // namespace tenscope
