#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/event_parser.hpp"
#include "store/run_folder.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {

// What a writer's journal says of the writer itself: how it ended, and what it lost. Fed while the journal is read.
class WriterAccount {
 public:
  // One event. `name` is head.name, which is not valid any more once the parser has been used again.
  void add(const EventHead& head, std::string_view name, std::string_view line, std::uint64_t offset,
           EventParser& parser);

  // Fills in the writer's end and its losses. A loss that no limit asked for is a problem, too.
  void finish(const fs::path& folder, bool is_ring, WriterInfo& info, std::vector<Loss>& losses,
              std::vector<Problem>& problems) const;

 private:
  struct Dropped {
    std::uint64_t events = 0;
    std::uint64_t offset = 0;  // of the first line that tells of it
  };

  void add_tensor(const EventHead& head);
  void add_note(std::string_view name, std::string_view line, EventParser& parser);
  void find_missing_segments(const fs::path& folder, bool is_ring, const WriterInfo& info, std::vector<Loss>& losses,
                             std::vector<Problem>& problems) const;

  bool has_events_ = false;
  std::uint64_t first_seq_ = 0;
  bool is_closed_ = false;  // by its last event
  bool is_repaired_ = false;
  std::string exception_, exception_message_;
  std::map<std::string, Dropped> dropped_;  // by reason
  bool has_budget_note_ = false;
  std::uint64_t cut_tensors_ = 0;           // marked as such
  std::uint64_t unmarked_cut_tensors_ = 0;  // of a writer that did not mark them: without bytes, behind the note
  std::unordered_map<std::int64_t, std::uint64_t> tensors_in_;  // events by segment
};

}  // namespace tenscope::store
