#include "store/sources.hpp"

#include <gtest/gtest.h>

#include "store/run_fixture.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

TEST(Sources, ANoteIsReadAsItStands) {
  const auto kept = parse_source(
      R"({"file":"model.py","path":"/x/model.py","fp":"0123456789abcdef0123456789abcdef","bytes":14,"lines":1})");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->file, "model.py");
  EXPECT_EQ(kept->path, "/x/model.py");
  EXPECT_EQ(kept->size_bytes, 14U);
  EXPECT_EQ(kept->line_count, 1U);
  EXPECT_TRUE(kept->left_out.empty());
  EXPECT_EQ(parse_source(R"({"file":"a.py","left_out":"too large"})")->left_out, "too large");
  // Another program's note of that name, or a damaged one; no path comes out of a fingerprint.
  for (const char* other : {"", "[]", "{}", R"({"file":"a.py"})", R"({"fp":"0123456789abcdef0123456789abcdef"})",
                            R"({"file":"a.py","fp":"../../../../etc/passwd"})", R"({"file":3,"fp":4})"})
    EXPECT_FALSE(parse_source(other)) << other;
}

std::string print_of(const std::string& text) {
  const auto size = static_cast<std::int64_t>(text.size());
  return kernels::fingerprint({text.data(), DType::U8, {&size, 1}, {}, "cpu"}).hex();
}

TEST(Sources, AreListedOnceReadAndVerified) {
  RunFixture run;
  const std::string text = "class A: pass\n", print = print_of(text);
  const auto note = [&](const std::string& file, const std::string& rest) {
    run.add(fmt::format(R"("kind":"note","name":"source","step":0,"meta":{{"file":"{}",{}}})", file, rest));
  };
  note("model.py", fmt::format(R"("fp":"{}")", print));
  note("model.py", fmt::format(R"("fp":"{}")", print));
  note("copy.py", fmt::format(R"("fp":"{}")", print));
  note("large.py", R"("left_out":"it is larger than 5 bytes")");
  run.close();
  EXPECT_EQ(verify(run.path()).size(), 1U);  // its text is not there; told once
  const std::filesystem::path path = run.path() / "sources" / (print + ".py");
  std::filesystem::create_directories(path.parent_path());
  RunFixture::write(path, text);
  EXPECT_TRUE(verify(run.path()).empty());
  const Reader reader(run.path());
  const auto sources = reader.sources();
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_EQ(sources[0].file, "model.py");
  EXPECT_EQ(sources[1].file, "copy.py");
  EXPECT_EQ(sources[2].left_out, "it is larger than 5 bytes");
  EXPECT_EQ(reader.source_text(print), text);
  EXPECT_THROW(reader.source_text(""), Error);
  EXPECT_THROW(reader.source_text("../../../../../etc/passwd"), Error);
  EXPECT_TRUE(repair(run.path()).empty());
  RunFixture::write(path, "class B: pass\n");
  EXPECT_THROW(reader.source_text(print), Error);
  const auto problems = verify(run.path());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].file, path);
}

}  // namespace
}  // namespace tenscope::store
