// diff_runs: the comparison on run folders.
#include <fmt/format.h>

#include <deque>
#include <future>
#include <map>
#include <set>
#include <utility>

#include "compare/layout_check.hpp"
#include "compare/logical_runs.hpp"
#include "compare/loss_scale.hpp"
#include "compare/noise_profile.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/rows.hpp"
#include "compare/run_diff.hpp"
#include "compare/run_values.hpp"
#include "kernels/parallel.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;
using compare::Item;

// The rank whose folder a path of the run lies in; -1: none.
int rank_of(const fs::path& path, const fs::path& run) {
  const auto folder = store::parse_writer_folder(path.lexically_proximate(run).begin()->string());
  return folder ? folder->rank : -1;
}

// What is known of how a run was recorded: put(rank, note).
template <class Put>
void note_state(const Reader& reader, int side, Put put) {
  const auto add = [&](int rank, DiffNote note) {
    note.side = side;
    put(rank, std::move(note));
  };
  for (const Problem& problem : reader.problems())
    if (problem.kind != ProblemKind::Loss)
      add(rank_of(problem.file, reader.path()), {.kind = DiffNote::Kind::Damage,
                                                 .subject = problem.file.lexically_proximate(reader.path()).string(),
                                                 .a = problem.reason,
                                                 .count = problem.offset});
  for (const Loss& loss : reader.losses())
    add(rank_of(reader.path() / loss.writer, reader.path()),
        {.kind = DiffNote::Kind::Lost, .a = to_string(loss), .count = loss.is_limit ? 0 : loss.events});
  for (const WriterInfo& writer : reader.writers())
    if (!writer.closed && !writer.repaired)
      add(writer.rank, {.kind = DiffNote::Kind::NotClosed, .subject = writer.folder});
}

void release(const Reader& reader, const compare::Lane& lane) {
  if (!lane.items.empty()) reader.release(reader.writer_index(lane.items.front().event));
}

// Reads ranks some time before they are asked for, each run by a thread of its own.
class RanksAhead {
 public:
  RanksAhead(const Reader& a, const Reader& b, std::vector<int> ranks) : a_(a), b_(b), ranks_(std::move(ranks)) {
    most_ = static_cast<std::size_t>(kernels::worker_count(ranks_.size(), store::most_open_files()));
  }

  // The next rank, said by the numbers of the interner.
  compare::RankTimelines next(compare::Interner& interner) {
    for (; reading_.size() < most_ && begun_ < ranks_.size(); ++begun_)
      reading_.push_back({ranks_[begun_], begin(a_, ranks_[begun_]), begin(b_, ranks_[begun_])});
    Reading first = std::move(reading_.front());
    reading_.pop_front();
    compare::RankTimelines result{.rank = first.rank, .a = {}, .b = {}};
    for (auto [from, into] : {std::pair(&first.a, &result.a), std::pair(&first.b, &result.b)}) {
      auto read = from->get();
      compare::translate(read.first, read.second, interner);
      *into = std::move(read.first);
    }
    return result;
  }

 private:
  using Read = std::future<std::pair<compare::Timeline, compare::Interner>>;
  struct Reading {
    int rank;
    Read a, b;
  };

  static Read begin(const Reader& reader, int rank) {
    return std::async(std::launch::async, [&reader, rank] {
      std::pair<compare::Timeline, compare::Interner> read;
      read.first = compare::read_timeline(reader, rank, read.second);
      return read;
    });
  }

  const Reader& a_;
  const Reader& b_;
  const std::vector<int> ranks_;
  std::size_t most_ = 1, begun_ = 0;
  std::deque<Reading> reading_;
};

std::vector<int> ranks_to_compare(const Reader& a, const Reader& b, const std::vector<int>& wanted) {
  std::set<int> ranks;
  for (const Reader* reader : {&a, &b})
    for (const WriterInfo& writer : reader->writers()) ranks.insert(writer.rank);
  for (const int rank : wanted)
    if (!ranks.contains(rank))
      throw Error(ErrorCode::NotFound,
                  fmt::format("no rank {} is in either run: {} and {}", rank, a.path().string(), b.path().string()));
  return {ranks.begin(), ranks.end()};
}

}  // namespace

bool compare::is_run_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !list_runs(path).empty();
}

namespace {

// Notes of how both runs were recorded.
void note_states(const Reader& a, const Reader& b, compare::PartialDiff& diff) {
  for (const int side : {0, 1})
    note_state(side == 0 ? a : b, side, [&, index = std::size_t{0}](int rank, DiffNote note) mutable {
      diff.add(compare::OfRank<DiffNote>{rank, index++, std::move(note)});
    });
}

compare::Measures measures_of(compare::RunValues& values, const compare::TensorSource& a,
                              const compare::TensorSource& b) {
  return {.pair = [&](const Item& x, const Item& y) { return values.measure(x, y); },
          .update = [&](const auto& x, const auto& y) { return values.measure_update(x, y); },
          .distribution = [&](const Item& x, const Item& y) { return values.measure_distribution(x, y); },
          .is_same_mask = [&](const Item& x, const Item& y) { return values.is_same_mask(x, y); },
          .estimate = [&](const Item& x, const Item& y) { return values.estimate(x, y); },
          .noise = {},
          .source_a = &a,
          .source_b = &b,
          .release = {}};
}

compare::Describe describe_by(const compare::RunValues& values) {
  return {.pair = [&](const Item& x, const Item& y) { return values.describe(x, y); },
          .update = [&](const auto& x, const auto& y) { return values.describe_update(x, y); },
          .event = {},
          .code = {}};
}

// What was measured of the places of two runs.
class ProfiledNoise {
 public:
  ProfiledNoise(const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
    if (!options.noise) return;
    if (!options.noise->empty()) {
      given_ = compare::NoiseProfile::read(paths_.emplace_back(compare::profile_path(*options.noise)));
      return;
    }
    of_a_ = read_beside(a);
    if (b != a) of_b_ = read_beside(b);
  }

  const std::vector<fs::path>& paths() const noexcept { return paths_; }

  // The names of a profile are those of its own run.
  std::optional<compare::PlaceNoise> find(int rank, const Item& x, const Item& y,
                                          const compare::Interner& interner) const {
    const compare::NoisePlace in_a = place(rank, x, interner), in_b = place(rank, y, interner);
    std::optional<compare::PlaceNoise> found;
    const auto add = [&](const compare::PlaceNoise* noise) {
      if (noise == nullptr) return;
      if (!found) found.emplace();
      found->add(*noise);
    };
    if (of_a_) add(of_a_->find(in_a));
    if (of_b_) add(of_b_->find(in_b));
    if (given_) add(given_->find(in_a));
    if (given_ && !found) add(given_->find(in_b));
    return found;
  }

 private:
  std::optional<compare::NoiseProfile> read_beside(const fs::path& run) {
    fs::path path = compare::profile_path(run);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return std::nullopt;
    return compare::NoiseProfile::read(paths_.emplace_back(std::move(path)));
  }

  static compare::NoisePlace place(int rank, const Item& item, const compare::Interner& interner) {
    return {.rank = rank,
            .name = interner.text(item.name),
            .io = to_string(item.io),
            .phase = to_string(item.phase),
            .step = item.step,
            .call = item.call};
  }

  std::vector<fs::path> paths_;
  std::optional<compare::NoiseProfile> of_a_, of_b_, given_;
};

// `assumed_noise`: RankTimelines::assumed_noise.
compare::PartialDiff diff_by_ranks(const Reader& a, const Reader& b, const RunDiffOptions& options,
                                   double assumed_noise = 0) {
  using namespace compare;
  Interner interner;
  const ReaderSource source_a(a), source_b(b);
  RunValues values(source_a, source_b, interner);
  const ContentSource content = values.content_source();
  Measures measures = measures_of(values, source_a, source_b);
  measures.release = [&](const Lane& x, const Lane& y) { release(a, x), release(b, y); };
  const ProfiledNoise noise(a.path(), b.path(), options);
  if (!noise.paths().empty())
    measures.noise = [&](int rank, const Item& x, const Item& y) { return noise.find(rank, x, y, interner); };
  CodeComparison codes(
      [&](int run, const std::string& fingerprint) { return (run == 0 ? a : b).source_text(fingerprint); });
  Describe describe = describe_by(values);
  describe.code = [&](const CodeOfModule& x, const CodeOfModule& y) { return codes.compare(x, y); };
  PartialDiff diff{.a = a.path().string(), .b = b.path().string(), .max_origins = options.max_origins};
  for (const fs::path& path : noise.paths()) diff.noise_profiles.push_back(path.string());
  note_states(a, b, diff);
  const std::vector<int> ranks = ranks_to_compare(a, b, options.ranks);
  RanksAhead ahead(a, b, ranks);
  Known known(options.max_origins);
  RunDiffOptions of_rank = options;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (options.on_progress)
      of_rank.on_progress = [&](double done) {
        options.on_progress((static_cast<double>(i) + done) / static_cast<double>(ranks.size()));
      };
    RankTimelines timelines = ahead.next(interner);
    timelines.assumed_noise = assumed_noise;
    PartialDiff one = diff_rank(timelines, interner, measures, describe, of_rank, known, &content);
    one.a = diff.a;
    one.b = diff.b;
    diff.merge(std::move(one));
  }
  return diff;
}

double share_that_agrees(const RunDiff& diff) {
  const auto agreeing = static_cast<double>(diff.bit_equal + diff.same_values + diff.noise);
  return diff.compared == 0 ? 0 : agreeing / static_cast<double>(diff.compared);
}

std::size_t count_ranks(const Reader& reader) {
  std::set<int> ranks;
  for (const WriterInfo& writer : reader.writers()) ranks.insert(writer.rank);
  return ranks.size();
}

// "1 process", "4 ranks, 2 passes in a step".
std::string layout_in_words(const compare::LogicalRuns& runs, int run) {
  const std::size_t ranks = runs.lanes[static_cast<std::size_t>(run)].lanes.size(),
                    passes = runs.table->most_passes(run);
  std::string words = ranks == 1 ? "1 process" : fmt::format("{} ranks", ranks);
  if (passes > 1) words += fmt::format(", {} passes in a step", passes);
  return words;
}

// The comparison of whole tensors, whatever ranks and passes have the parts of them. Tells which noise it assumed.
RunDiff diff_of_wholes(const Reader& a, const Reader& b, const RunDiffOptions& options,
                       double* assumed_noise = nullptr) {
  using namespace compare;
  Interner interner;
  Timeline timeline_a = read_timeline(a, interner), timeline_b = read_timeline(b, interner);
  LogicalRuns runs = make_logical_runs(a, b, std::move(timeline_a), std::move(timeline_b), interner, options.map);
  RunValues values(*runs.sources[0], *runs.sources[1], interner);
  Measures measures = measures_of(values, *runs.sources[0], *runs.sources[1]);
  measures.update = [&](const auto& x, const auto& y) {
    auto whole = values.measure_update(x, y);
    if (!whole || whole->is_mistake()) return whole;
    const auto part = runs.measure_update(x, y);
    return part && part->is_mistake() ? part : whole;
  };
  Describe describe = describe_by(values);
  describe.pair = [&](const Item& x, const Item& y) {
    DiffMetrics metrics = values.describe(x, y);
    const MatchedSlot *slot_a = runs.sources[0]->slot_of(x), *slot_b = runs.sources[1]->slot_of(y);
    if (slot_a != nullptr) metrics.assembled_a = slot_a->choice->how[0].assembly.in_words();
    if (slot_b != nullptr) metrics.assembled_b = slot_b->choice->how[1].assembly.in_words();
    const MatchedSlot* slot = slot_b != nullptr ? slot_b : slot_a;
    metrics.is_sum_missing = slot != nullptr && slot->choice->is_sum_missing;
    metrics.parts = runs.off_parts(x, y);
    return metrics;
  };
  if (assumed_noise != nullptr) *assumed_noise = runs.roundoff;
  describe.event = [&](int run, const Item& item) { return runs.event_of(run, item, interner); };
  CodeComparison codes(
      [&](int run, const std::string& fingerprint) { return (run == 0 ? a : b).source_text(fingerprint); });
  describe.code = [&](const CodeOfModule& x, const CodeOfModule& y) { return codes.compare(x, y); };
  describe.module = [&](int run, const ModuleNode& node) -> std::optional<ModuleOfRun> {
    const int found = runs.table->tree().find(node.root, interner.text(node.path));
    return found < 0 ? std::nullopt : runs.table->module_of(run, found);
  };
  const RankTimelines both{
      .rank = 0, .a = std::move(runs.timelines[0]), .b = std::move(runs.timelines[1]), .assumed_noise = runs.roundoff};
  RunDiffOptions unmapped = options;
  unmapped.map.clear();   // the modules have one name already
  unmapped.on_pair = {};  // wholes are no events
  Known known(options.max_origins);
  PartialDiff part = diff_rank(both, interner, measures, describe, unmapped, known);
  part.a = a.path().string();
  part.b = b.path().string();
  part.total_a = runs.totals[0];
  part.total_b = runs.totals[1];
  part.has_results = runs.has_results;
  note_states(a, b, part);
  RunDiff diff = part.result();
  diff.layouts = std::move(runs.layouts);
  const bool is_agreement = diff.verdict == DiffVerdict::Equal || diff.verdict == DiffVerdict::Noise;
  if (is_agreement && runs.is_plain_left_out) diff.verdict = DiffVerdict::Unknown;
  if (!runs.not_assembled.empty())
    diff.notes.insert(diff.notes.begin(), {.kind = DiffNote::Kind::NotAssembled,
                                           .subject = runs.not_assembled.front(),
                                           .count = runs.not_assembled.size()});
  const std::string words_a = layout_in_words(runs, 0), words_b = layout_in_words(runs, 1);
  const bool are_both_whole = words_a == words_b && runs.lanes[0].lanes.size() == 1;
  if (!are_both_whole)
    diff.notes.insert(diff.notes.begin(), {.kind = DiffNote::Kind::OtherLayout, .a = words_a, .b = words_b});
  return diff;
}

bool are_alike(const Reader& a, const Reader& b) {
  compare::Interner interner;
  for (const WriterInfo& writer : a.writers()) {
    const auto writers = b.writers();
    const bool is_in_both =
        std::ranges::any_of(writers, [&](const WriterInfo& other) { return other.rank == writer.rank; });
    if (!is_in_both) continue;
    return compare::are_laid_out_alike(
        compare::read_timeline(a, writer.rank, interner), compare::read_timeline(b, writer.rank, interner),
        store::read_run_file(a.path()).world_size, store::read_run_file(b.path()).world_size, interner);
  }
  return true;
}

// Which ranks have the same tensor: a number for each, the same for those that have.
std::map<int, std::size_t> ranks_alike(const Reader& reader, const DiffEvent& event) {
  std::map<int, std::size_t> groups;
  std::map<std::string, std::size_t> contents;
  for (const EventId id : reader.find({.name = event.name, .step = event.step, .call = event.call})) {
    const Event found = reader.event(id);
    if (const auto* tensor = std::get_if<TensorRecord>(&found.value))
      groups.try_emplace(reader.writers()[reader.writer_index(id)].rank,
                         contents.try_emplace(tensor->fingerprint.hex(), contents.size()).first->second);
  }
  return groups;
}

// Data that differs rank by rank, and is the same as a whole, is dealt out in another way, and no mistake: unless other
// ranks have the same of it.
bool is_dealt_otherwise(const RunDiff& by_ranks, const RunDiff& of_wholes, const Reader& a, const Reader& b) {
  const auto blames_data = [](const RunDiff& diff) {
    return diff.first_divergence && diff.first_divergence->reason.cause == DiffCause::ModelInput;
  };
  if (!blames_data(by_ranks) || blames_data(of_wholes)) return false;
  const DiffOrigin& data = *by_ranks.first_divergence;
  return data.event_a && data.event_b && ranks_alike(a, *data.event_a) == ranks_alike(b, *data.event_b);
}

// Ranks may also share the work in another way that their shapes do not show: gradients that are averaged at the end of
// the backward, or on the way; other pieces of the sequence. That is so where more of the whole tensors agrees. A loss
// that is scaled for its backward multiplies the gradients inside the network, too.
RunDiff settled(RunDiff by_ranks, const Reader& a, const Reader& b, const RunDiffOptions& options) {
  const bool are_as_many = count_ranks(a) == count_ranks(b);
  const bool has_modules = !by_ranks.modules.empty();  // which say what belongs together
  if (by_ranks.verdict != DiffVerdict::Differs || (are_as_many && !has_modules)) return by_ranks;
  const bool may_be_of_parts = !are_as_many || count_ranks(a) > 1;
  if (!may_be_of_parts && compare::loss_scale(a) == compare::loss_scale(b)) return by_ranks;
  constexpr std::size_t most = compare::pairing::kMostRanksPutTogether;
  if (are_as_many && count_ranks(a) > most) {
    by_ranks.notes.push_back({.kind = DiffNote::Kind::OnlyByRanks, .count = most});
    return by_ranks;
  }
  double assumed_noise = 0;
  RunDiff of_wholes = diff_of_wholes(a, b, options, &assumed_noise);
  // One rank of several against the only one is a guess: it proves nothing where the wholes tell nothing.
  if (!are_as_many && of_wholes.verdict == DiffVerdict::Unknown) return of_wholes;
  const auto wholes = static_cast<double>(std::min(of_wholes.total_a, of_wholes.total_b));
  if (static_cast<double>(of_wholes.compared) < compare::pairing::kNearlyAllWholes * wholes) return by_ranks;
  // What a half type's rounding is taken to excuse in the wholes, it excuses in the ranks.
  double share_of_ranks = share_that_agrees(by_ranks);
  if (are_as_many && assumed_noise > 0 && !of_wholes.within_tolerance()) {
    RunDiffOptions silent = options;
    silent.on_pair = {};
    silent.on_progress = {};
    share_of_ranks = share_that_agrees(diff_by_ranks(a, b, silent, assumed_noise).result());
  }
  const bool is_better = of_wholes.within_tolerance() || is_dealt_otherwise(by_ranks, of_wholes, a, b) ||
                         share_that_agrees(of_wholes) > share_of_ranks + compare::pairing::kMoreAgrees;
  return is_better ? of_wholes : by_ranks;
}

// A run that was recorded against another keeps no bytes of what agrees: the other has them.
void lend(Reader& a, Reader& b) {
  const auto is_without = [](const Reader& reader) {
    return !reader.find({.name = std::string(kAgainstNote), .kind = EventKind::Note}).empty();
  };
  const bool a_is_without = is_without(a), b_is_without = is_without(b);
  if (b_is_without) b.borrow_from(a);
  if (a_is_without) a.borrow_from(b);
}

}  // namespace

bool compare::are_laid_out_alike(const fs::path& a, const fs::path& b) {
  const ReaderOptions first{.ranks = {0}};
  return are_alike(Reader(a, first), Reader(b, first));
}

RunDiff compare::settle(RunDiff by_ranks, const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
  if (by_ranks.verdict != DiffVerdict::Differs) return by_ranks;
  Reader reader_a(a), reader_b(b);
  lend(reader_a, reader_b);
  return settled(std::move(by_ranks), reader_a, reader_b, options);
}

compare::PartialDiff compare::diff_some_ranks(const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
  const ReaderOptions reading{.ranks = options.ranks};
  std::future<Reader> opening_b = std::async(std::launch::async, [&] { return Reader(b, reading); });
  Reader reader_a(a, reading), reader_b = opening_b.get();
  lend(reader_a, reader_b);
  if (!options.ranks.empty() && !are_alike(reader_a, reader_b))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the runs are laid out differently, so that ranks cannot be compared one by one: {} and {}",
                            a.string(), b.string()));
  return diff_by_ranks(reader_a, reader_b, options);
}

RunDiff diff_runs(const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
  if (!options.ranks.empty()) return compare::diff_some_ranks(a, b, options).result();
  std::future<Reader> opening_b = std::async(std::launch::async, [&] { return Reader(b); });
  Reader reader_a(a), reader_b = opening_b.get();
  lend(reader_a, reader_b);
  if (!options.rows.empty()) {
    RunDiff diff = compare::diff_by_rows(reader_a, reader_b, options);
    for (const int side : {0, 1})
      note_state(side == 0 ? reader_a : reader_b, side,
                 [&](int, DiffNote note) { diff.notes.push_back(std::move(note)); });
    return diff;
  }
  const bool has_profile = options.noise && !options.noise->empty();
  if (has_profile && !are_alike(reader_a, reader_b))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the runs are laid out differently, and measured noise is that of the places of one "
                            "layout: {} and {}",
                            a.string(), b.string()));
  if (!are_alike(reader_a, reader_b)) return diff_of_wholes(reader_a, reader_b, options);
  return settled(diff_by_ranks(reader_a, reader_b, options).result(), reader_a, reader_b, options);
}

}  // namespace tenscope
