#pragma once

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tenscope::cli {

// While it lives, what is written to a file of this process, stdout say, has texts replaced by others on its way.
class OutputFilter {
 public:
  using Replacements = std::vector<std::pair<std::string, std::string>>;  // what by what

  OutputFilter(int fd, Replacements replacements);
  ~OutputFilter();
  OutputFilter(const OutputFilter&) = delete;
  OutputFilter& operator=(const OutputFilter&) = delete;

 private:
  void pass_on();
  std::string replaced(std::string& text, bool is_end) const;

  const int fd_;
  int original_ = -1;  // where it goes
  int source_ = -1;    // what is written comes out here
  const Replacements replacements_;
  std::thread thread_;
};

}  // namespace tenscope::cli
