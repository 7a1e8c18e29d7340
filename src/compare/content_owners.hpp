#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "compare/content_pairs.hpp"

namespace tenscope::compare {

// "fc1" of "fc1.weight" and of "fc1/kernel": engines write paths in either way.
std::string_view owner_of(std::string_view name) noexcept;

// Which owner of parameters (fc1 of fc1.weight and fc1.bias) is which of the other run, by the parameters that were
// paired, the largest first. What has parameters of many owners of the other run (blk.0 of blk.0.wq, blk.0.wk and
// blk.0.norm) is no owner.
class Owners {
 public:
  void learn(std::string_view name_a, std::string_view name_b, std::int64_t count);
  void finish();  // before the questions

  // The owner in b that is the same as the owner of a name of a; empty: not known.
  std::string_view in_b(std::string_view name_a) const;
  // Whether two parameters that were paired belong to owners that are others' partners: they have changed places.
  bool are_strangers(std::string_view name_a, std::string_view name_b) const;

 private:
  std::map<std::pair<std::string, std::string>, std::int64_t> counts_;
  std::map<std::string, std::string, std::less<>> to_b_, to_a_;
};

Owners owners_of(const ContentPairs& pairs, const Interner& interner);

// Pairs a parameter that is left with the one that is left of the same owner: its values have changed.
void match_siblings(ContentPairs& pairs, const Interner& interner);

}  // namespace tenscope::compare
