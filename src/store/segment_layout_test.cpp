#include "store/segment_layout.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "store/segment_header.hpp"

namespace tenscope::store {
namespace {

constexpr std::uint64_t kBegin = 64 << 10;

HeaderEntry entry_of(const std::string& name, std::uint64_t size_bytes) {
  HeaderEntry entry;
  encode_header_entry(entry, name, 0, 0, DType::U8, std::vector<std::int64_t>{static_cast<std::int64_t>(size_bytes)});
  return entry;
}

// As a reader sees it, which demands that the entries cover the data without hole or overlap.
std::map<std::string, HeaderItem> read(const SegmentLayout& layout) {
  std::string file(layout.tail(), '\0');
  const std::uint64_t length = kBegin - kHeaderPrefix;
  std::memcpy(file.data(), &length, sizeof length);
  const std::string header = layout.header();
  EXPECT_EQ(header.size(), length);
  std::memcpy(file.data() + kHeaderPrefix, header.data(), header.size());
  return read_segment_header(std::as_bytes(std::span(file)));
}

TEST(SegmentLayout, the_last_places_given_back_are_given_out_again) {
  SegmentLayout layout(kBegin, kBegin - kHeaderPrefix);
  const auto a = layout.add(kBegin, 10, entry_of("a", 10));
  const auto b = layout.add(kBegin + 64, 100, entry_of("b", 100));
  const auto c = layout.add(kBegin + 192, 50, entry_of("c", 50));
  layout.keep(a);
  layout.give_back(b);  // before c: its bytes stay taken
  EXPECT_EQ(layout.tail(), kBegin + 242);
  layout.give_back(c);  // now both are free, with the padding before them
  EXPECT_EQ(layout.tail(), kBegin + 10);
  layout.keep(layout.add(kBegin + 10, 5, entry_of("d", 5)));
  const auto items = read(layout);
  EXPECT_EQ(items.size(), 2u);
  EXPECT_EQ(items.at("d@0#0").begin, kBegin + 10);
}

TEST(SegmentLayout, everything_given_back_leaves_it_empty) {
  SegmentLayout layout(kBegin, kBegin - kHeaderPrefix);
  const auto a = layout.add(kBegin + 8, 0, entry_of("a", 0));
  const auto b = layout.add(kBegin + 64, 100, entry_of("b", 100));
  layout.give_back(a);
  layout.give_back(b);
  EXPECT_TRUE(layout.is_empty());
  EXPECT_EQ(layout.tail(), kBegin);
  EXPECT_EQ(layout.in_use(), 0u);
}

TEST(SegmentLayout, refuses_a_place_that_overlaps) {
  SegmentLayout layout(kBegin, kBegin - kHeaderPrefix);
  layout.add(kBegin, 10, entry_of("a", 10));
  EXPECT_THROW(layout.add(kBegin + 9, 10, entry_of("b", 10)), std::logic_error);
}

TEST(SegmentLayout, says_when_its_header_is_full) {
  SegmentLayout layout(4096, 4096 - kHeaderPrefix);
  int count = 0;
  for (; layout.has_header_room(entry_of("x", 1)); ++count) layout.keep(layout.add(layout.tail(), 1, entry_of("x", 1)));
  EXPECT_GT(count, 10);
  EXPECT_NO_THROW(layout.header());
}

// Places are kept and given back in every order, with pads, empty tensors and keys that repeat.
TEST(SegmentLayout, any_order_gives_a_header_that_covers_the_data) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    SegmentLayout layout(kBegin, kBegin - kHeaderPrefix);
    struct Open {
      std::size_t place;
      std::string name;
      std::uint64_t begin, end;
    };
    std::vector<Open> open;
    std::multimap<std::string, std::pair<std::uint64_t, std::uint64_t>> kept;
    for (int i = 0; i < 60; ++i) {
      if (open.empty() || random() % 2 == 0) {
        const std::uint64_t begin = layout.tail() + (random() % 3 == 0 ? random() % 64 : 0);
        const std::uint64_t size = random() % 4 == 0 ? 0 : random() % 500;
        const std::string name = "n" + std::to_string(random() % 40);
        open.push_back({layout.add(begin, size, entry_of(name, size)), name, begin, begin + size});
      } else {
        const auto which = open.begin() + static_cast<std::ptrdiff_t>(random() % open.size());
        if (random() % 3 == 0) {
          layout.give_back(which->place);
        } else {
          layout.keep(which->place);
          kept.emplace(which->name + "@0#0", std::pair(which->begin, which->end));
        }
        open.erase(which);
      }
    }
    for (const Open& last : open) layout.give_back(last.place);
    ASSERT_EQ(layout.in_use(), 0u);
    std::size_t named = 0;
    for (const auto& [key, item] : read(layout)) {
      if (key.starts_with(kPadKey)) continue;
      ++named;
      const auto [first, last] = kept.equal_range(key.substr(0, key.find('~')));
      EXPECT_TRUE(
          std::any_of(first, last, [&](const auto& other) { return other.second == std::pair(item.begin, item.end); }))
          << "seed " << seed << ": " << key;
    }
    EXPECT_EQ(named, kept.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tenscope::store
