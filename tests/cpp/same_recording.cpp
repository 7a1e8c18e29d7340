// Records what tests/test_cpp.py records from Python: same_recording RUNS
#include <cstdint>
#include <cstring>
#include <string>
#include <tenscope/tenscope.hpp>
#include <vector>

namespace {

std::vector<std::uint64_t> contents(std::uint64_t seed, std::size_t size_bytes) {
  std::vector<std::uint64_t> words((size_bytes + 7) / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = seed + i * 0x9E3779B97F4A7C15;
  return words;
}

// Bools have one right bit pattern for true.
std::vector<std::uint64_t> contents(std::uint64_t seed, tenscope::DType dtype, std::int64_t count) {
  auto words = contents(seed, static_cast<std::size_t>(count) * tenscope::item_size(dtype));
  if (dtype == tenscope::DType::Bool) {
    for (auto& word : words) word &= 0x0101010101010101;
  }
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tenscope::Run run(argv[1]);
  for (int d = 0; d < tenscope::kDTypeCount; ++d) {
    const auto dtype = static_cast<tenscope::DType>(d);
    const std::string name(tenscope::to_string(dtype));
    const auto words = contents(static_cast<std::uint64_t>(d), dtype, 105);
    const std::int64_t shape[] = {3, 5, 7}, transposed[] = {7, 5, 3}, strides[] = {1, 7, 35}, none[] = {0, 4};
    run.record(name, tenscope::TensorView{words.data(), dtype, shape, {}});
    run.record(name + ".transposed", tenscope::TensorView{words.data(), dtype, transposed, strides});
    run.record(name + ".scalar", tenscope::TensorView{words.data(), dtype, {}, {}});
    run.record(name + ".empty", tenscope::TensorView{words.data(), dtype, none, {}});
  }
  for (int step = 1; step <= 3; ++step) {
    run.step(step);
    const auto words = contents(static_cast<std::uint64_t>(step) << 40, tenscope::DType::F32, 3'000'000);
    const std::int64_t shape[] = {1000, 3000};
    run.record("large", tenscope::TensorView{words.data(), tenscope::DType::F32, shape, {}});
    run.record("large", tenscope::TensorView{words.data(), tenscope::DType::F32, shape, {}});
    run.record("loss", 0.5 / step);
    run.record("epoch", step);
    run.record("phase", "train");
  }
}
