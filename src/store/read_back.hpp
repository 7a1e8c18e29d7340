#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/summarize.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

// Tests only: what is recorded, and what of it a run folder gives back.
namespace tenscope {

namespace fs = std::filesystem;

inline std::vector<float> ramp(std::size_t size, float start = 0) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), start);
  return values;
}

template <class T>
std::vector<T> values_of(const Reader& reader, EventId id) {
  const auto data = reader.tensor(id);
  std::vector<T> values(size_bytes(data.view) / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), data.view.data, size_bytes(data.view));
  return values;
}

inline EventId only(const Reader& reader, const Query& query) {
  const auto ids = reader.find(query);
  EXPECT_EQ(ids.size(), 1u) << query.name;
  return ids.empty() ? 0 : ids[0];
}

inline std::uint64_t folder_bytes(const fs::path& folder) {
  std::uint64_t total = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) total += entry.file_size();
  }
  return total;
}

inline std::size_t count_files(const fs::path& folder, const std::string& ending) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) count += entry.path().string().ends_with(ending);
  return count;
}

inline void expect_healthy(const fs::path& run, bool is_ring = false) {
  const Reader reader(run);
  for (const auto& problem : reader.problems()) ADD_FAILURE() << problem.file << ": " << problem.reason;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    if (!reader.is_tensor(id)) continue;
    const auto event = reader.event(id);
    const auto& record = std::get<TensorRecord>(event.value);
    if (!record.blob) continue;
    try {
      EXPECT_EQ(kernels::fingerprint(reader.tensor(id).view), record.fingerprint) << event.name;
    } catch (const Error& error) {
      EXPECT_TRUE(is_ring && error.code() == ErrorCode::NotFound) << error.what();
    }
  }
}

}  // namespace tenscope
