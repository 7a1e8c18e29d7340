#include "compare/row_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/suggest.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

template <class T>
void append(const TensorView& view, std::vector<std::uint64_t>& values, std::vector<bool>& is_negative) {
  const auto* from = static_cast<const T*>(view.data);
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) {
    values.push_back(static_cast<std::uint64_t>(from[i]));
    is_negative.push_back(std::is_signed_v<T> && from[i] < T{});
  }
}

// False where the tensor holds no integers.
bool append_integers(const TensorView& view, std::vector<std::uint64_t>& values, std::vector<bool>& is_negative) {
  const auto take = [&]<class T>(T) {
    append<T>(view, values, is_negative);
    return true;
  };
  switch (view.dtype) {
    case DType::I8:
      return take(std::int8_t{});
    case DType::I16:
      return take(std::int16_t{});
    case DType::I32:
      return take(std::int32_t{});
    case DType::I64:
      return take(std::int64_t{});
    case DType::U8:
      return take(std::uint8_t{});
    case DType::U16:
      return take(std::uint16_t{});
    case DType::U32:
      return take(std::uint32_t{});
    case DType::U64:
      return take(std::uint64_t{});
    default:
      return false;
  }
}

std::int64_t rows_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The shape that both are repeated to, as NumPy does; nothing where they do not fit.
std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape both(std::max(a.size(), b.size()), 1);
  for (std::size_t k = 0; k < both.size(); ++k) {
    const std::int64_t x = k < a.size() ? a[a.size() - 1 - k] : 1, y = k < b.size() ? b[b.size() - 1 - k] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    both[both.size() - 1 - k] = x == 1 ? y : x;
  }
  return both;
}

// Where the element of `from` stands that is repeated to element `at` of `to`.
std::size_t broadcast_from(const Shape& from, const Shape& to, std::int64_t at) {
  std::int64_t place = 0, stride = 1;
  for (std::size_t k = 0; k < to.size(); ++k) {
    const std::int64_t index = at % to[to.size() - 1 - k];
    at /= to[to.size() - 1 - k];
    if (k >= from.size()) continue;
    const std::int64_t size = from[from.size() - 1 - k];
    place += (size == 1 ? 0 : index) * stride;
    stride *= size;
  }
  return static_cast<std::size_t>(place);
}

}  // namespace

RowTable::RowTable(const Reader& reader, const std::vector<std::string>& columns) : reader_(reader), columns_(columns) {
  const std::vector<std::string> known = reader.names();
  for (const std::string& column : columns)
    if (std::ranges::find(known, column) == known.end())
      throw Error(ErrorCode::NotFound, fmt::format("cannot tell rows by '{}': nothing of that name was recorded{}: {}",
                                                   column, did_you_mean(column, known), reader.path().string()));
  const std::vector<BatchName> names = name_batches();
  std::map<BatchName, Batch> found;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    for (EventId id = 0; id < reader.event_count(); ++id) {
      if (reader.kind(id) != EventKind::Value || reader.name(id) != columns[k]) continue;
      std::vector<Numbers>& of_batch = found[names[id]].columns;
      if (of_batch.size() == k) of_batch.push_back(read_column(id, columns[k]));
    }
  }
  std::map<BatchName, std::size_t> numbers;
  for (auto& [name, batch] : found) {
    if (batch.columns.size() != columns.size())
      throw Error(ErrorCode::NotFound,
                  fmt::format("the rows' key '{}' was not recorded with each batch, as '{}' was: {}",
                              columns[batch.columns.size()], columns.front(), reader.path().string()));
    for (const Numbers& column : batch.columns) {
      const auto shape = broadcast(batch.shape, column.shape);
      if (!shape)
        throw Error(
            ErrorCode::InvalidArgument,
            fmt::format("the rows' keys {} have shapes that do not fit, [{}] and [{}]: {}", fmt::join(columns, ", "),
                        fmt::join(batch.shape, ", "), fmt::join(column.shape, ", "), reader.path().string()));
      batch.shape = *shape;
    }
    for (Numbers& column : batch.columns) {
      if (column.shape == batch.shape) continue;
      Numbers repeated{.shape = batch.shape, .values = {}, .is_negative = {}};
      for (std::int64_t row = 0; row < rows_of(batch.shape); ++row) {
        const std::size_t from = broadcast_from(column.shape, batch.shape, row);
        repeated.values.push_back(column.values[from]);
        repeated.is_negative.push_back(column.is_negative[from]);
      }
      column = std::move(repeated);
    }
    numbers.emplace(name, batches_.size());
    batches_.push_back(std::move(batch));
  }
  for (const BatchName& name : names) {
    const auto number = numbers.find(name);
    batch_of_.push_back(number == numbers.end() ? batches_.size() : number->second);
  }
  place_rows();
}

RowTable::Numbers RowTable::read_column(EventId id, const std::string& column) const {
  Numbers numbers;
  const Event event = reader_.event(id);
  bool is_integer = true;
  if (const auto* number = std::get_if<std::int64_t>(&event.value)) {
    numbers.values = {static_cast<std::uint64_t>(*number)};
    numbers.is_negative = {*number < 0};
  } else if (const auto* record = std::get_if<TensorRecord>(&event.value)) {
    const TensorData data = reader_.tensor(id);
    numbers.shape = record->shape;
    is_integer = append_integers(data.view, numbers.values, numbers.is_negative);
  } else {
    is_integer = false;
  }
  if (!is_integer)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot tell rows by '{}': it holds no integers; number what it names, and record the "
                            "numbers: {}",
                            column, reader_.path().string()));
  return numbers;
}

bool RowTable::is_column(std::string_view name) const { return std::ranges::find(columns_, name) != columns_.end(); }

std::optional<std::size_t> RowTable::batch_of(EventId id) const {
  return batch_of_[id] == batches_.size() ? std::nullopt : std::optional(batch_of_[id]);
}

void RowTable::place_rows() {
  for (std::size_t number = 0; number < batches_.size(); ++number) {
    const std::vector<Numbers>& columns = batches_[number].columns;
    for (std::size_t row = 0; row < columns.front().values.size(); ++row) {
      if (std::ranges::any_of(columns, [&](const Numbers& column) { return column.is_negative[row]; })) {
        ++padding_;
        continue;
      }
      RowKey key;
      for (const Numbers& column : columns) key.push_back(column.values[row]);
      places_[std::move(key)].push_back({number, static_cast<std::int64_t>(row)});
    }
  }
}

bool RowTable::has_unique_keys() const {
  return std::ranges::all_of(places_, [](const auto& entry) {
    std::set<std::size_t> batches;
    return std::ranges::all_of(entry.second, [&](const RowPlace& place) { return batches.insert(place.batch).second; });
  });
}

bool RowTable::has_sequences() const {
  return columns_.size() == 1 &&
         std::ranges::any_of(batches_, [](const Batch& batch) { return without_ones(batch.shape).size() > 1; });
}

// A batch is a step, or, where keys are recorded several times in one, what follows each recording of the first.
std::vector<RowTable::BatchName> RowTable::name_batches() const {
  std::set<BatchName> steps;
  bool is_by_step = true;
  const auto is_first_key = [&](EventId id) {
    return reader_.kind(id) == EventKind::Value && reader_.name(id) == columns_.front();
  };
  for (EventId id = 0; id < reader_.event_count(); ++id)
    if (is_first_key(id)) is_by_step &= steps.emplace(reader_.writer_index(id), reader_.step(id)).second;
  std::vector<BatchName> names;
  std::map<std::size_t, std::int64_t> recorded;  // by writer
  for (EventId id = 0; id < reader_.event_count(); ++id) {
    const std::size_t writer = reader_.writer_index(id);
    if (is_first_key(id)) ++recorded[writer];
    names.emplace_back(writer, is_by_step ? reader_.step(id) : recorded[writer]);
  }
  return names;
}

// ---- token ids for keys

namespace {

// A prefix of tokens, as a number that stands for it.
class TokenPrefixes {
 public:
  std::int64_t longer(std::int64_t prefix, std::uint64_t token) {
    const auto [at, is_new] = next_.try_emplace({prefix, token}, static_cast<std::int64_t>(next_.size()) + 1);
    if (is_new) shorter_.push_back(prefix);
    return at->second;
  }
  std::optional<std::int64_t> find(std::int64_t prefix, std::uint64_t token) const {
    const auto found = next_.find({prefix, token});
    return found == next_.end() ? std::nullopt : std::optional(found->second);
  }
  // Without the last token.
  std::int64_t shorter(std::int64_t prefix) const { return shorter_[static_cast<std::size_t>(prefix)]; }

 private:
  std::map<std::pair<std::int64_t, std::uint64_t>, std::int64_t> next_;  // 0 is the empty prefix
  std::vector<std::int64_t> shorter_ = {0};
};

// One sequence of a batch: its tokens that are not negative, and their rows.
struct TokenSequence {
  std::size_t batch = 0;
  std::int64_t first_row = 0;
  std::vector<std::int64_t> rows;
  std::vector<std::uint64_t> tokens;

  // How many equal tokens it begins with, and ends with.
  std::size_t leading() const { return equal_run(tokens.begin(), tokens.end()); }
  std::size_t trailing() const { return equal_run(tokens.rbegin(), tokens.rend()); }

 private:
  template <class Iterator>
  static std::size_t equal_run(const Iterator& begin, const Iterator& end) {
    if (begin == end) return 0;
    const auto last = std::find_if(begin, end, [&](std::uint64_t token) { return token != *begin; });
    return static_cast<std::size_t>(std::distance(begin, last));
  }
};

// The prefix that ends with each token of a sequence, where it is a known one. What is before `begin` and from `end` on
// is padding.
struct PlacedTokens {
  std::vector<std::optional<std::int64_t>> prefixes;
  std::size_t begin = 0, end = 0;
};

// A sequence of its own: it begins with its first token, or behind padding.
PlacedTokens place_whole(const TokenSequence& sequence, const TokenPrefixes& known) {
  const std::size_t size = sequence.tokens.size();
  PlacedTokens best;
  std::size_t most = 0;
  if (size == 0) return best;
  best = {.prefixes = std::vector<std::optional<std::int64_t>>(size), .begin = 0, .end = size};
  for (const std::size_t begin : {std::size_t{0}, sequence.leading() - 1, sequence.leading()}) {
    PlacedTokens placed{.prefixes = std::vector<std::optional<std::int64_t>>(size), .begin = begin, .end = begin};
    std::optional<std::int64_t> prefix = 0;
    while (placed.end < size && (prefix = known.find(*prefix, sequence.tokens[placed.end])))
      placed.prefixes[placed.end++] = prefix;
    if (placed.end - begin <= most) continue;
    most = placed.end - begin;
    if (size - placed.end > sequence.trailing()) placed.end = size;  // no padding: other tokens
    best = std::move(placed);
  }
  return best;
}

// Sequences behind each other, whole or going on from an earlier batch; `ends` are those of earlier batches. Of all
// ways to divide them the one that places most tokens, in the fewest pieces. What two such ways place differently is
// not placed.
PlacedTokens place_packed(const TokenSequence& batch, const TokenPrefixes& known,
                          std::map<std::int64_t, std::size_t>& ends) {
  using Prefix = std::optional<std::int64_t>;
  struct Step {
    std::pair<std::int64_t, std::int64_t> score;  // tokens placed, and minus the pieces
    Prefix before;
  };
  std::vector<std::map<Prefix, Step>> steps(batch.tokens.size() + 1);
  steps[0][std::nullopt] = {};
  const auto best_of = [](const std::map<Prefix, Step>& here) {
    return std::ranges::max_element(here, {}, [](const auto& entry) { return entry.second.score; });
  };
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    const std::uint64_t token = batch.tokens[i];
    const auto reach = [&](const Prefix& to, const Prefix& from, std::int64_t placed, std::int64_t pieces) {
      const auto [tokens, minus] = steps[i].at(from).score;
      const Step step{.score = {tokens + placed, minus - pieces}, .before = from};
      const auto [at, is_new] = steps[i + 1].try_emplace(to, step);
      if (!is_new && step.score > at->second.score) at->second = step;
    };
    const Prefix best = best_of(steps[i])->first;
    reach(std::nullopt, best, 0, 0);
    if (const auto first = known.find(0, token)) reach(first, best, 1, 1);
    for (const auto& [end, count] : ends)
      if (const auto longer = known.find(end, token)) reach(longer, best, 1, 1);
    for (const auto& [prefix, step] : steps[i])
      if (const auto longer = prefix ? known.find(*prefix, token) : std::nullopt) reach(longer, prefix, 1, 0);
  }
  PlacedTokens placed{.prefixes = std::vector<Prefix>(batch.tokens.size()), .begin = 0, .end = batch.tokens.size()};
  const auto most = best_of(steps.back())->second.score;
  bool is_first = true;
  for (const auto& [last, step] : steps.back()) {
    if (step.score != most) continue;
    Prefix prefix = last;
    for (std::size_t i = batch.tokens.size(); i > 0; --i) {
      Prefix& here = placed.prefixes[i - 1];
      here = is_first || here == prefix ? prefix : std::nullopt;
      prefix = steps[i].at(prefix).before;
    }
    is_first = false;
  }
  for (const Prefix& prefix : placed.prefixes) {  // an end that goes on is none any more
    if (!prefix) continue;
    ++ends[*prefix];
    if (const auto before = ends.find(known.shorter(*prefix)); before != ends.end() && --before->second == 0)
      ends.erase(before);
  }
  return placed;
}

// The rows of sequences by the tokens before them, themselves included.
struct TokenIndex {
  TokenPrefixes prefixes;
  std::map<std::int64_t, RowKey> keys;  // by prefix: sequence and place in it
  std::map<RowKey, std::vector<RowPlace>> places;
  std::size_t padding = 0;
};

// `pad`: the token that sequences are padded with in front. The last of them may be the first of the sequence, where
// the other run has it (`is_pad_used`): models pad with the token that begins a text.
TokenIndex index_tokens(const std::vector<TokenSequence>& sequences, std::optional<std::uint64_t> pad,
                        bool is_pad_used) {
  TokenIndex index;
  for (std::size_t number = 0; number < sequences.size(); ++number) {
    const TokenSequence& sequence = sequences[number];
    const bool is_padded = !sequence.tokens.empty() && pad == sequence.tokens[0];
    const std::size_t begin = is_padded ? sequence.leading() : 0;
    const auto key_of = [&](std::size_t i) {
      return RowKey{number, static_cast<std::uint64_t>(sequence.rows[i] - sequence.first_row)};
    };
    std::vector<RowKey> keys;
    std::int64_t prefix = 0;
    for (std::size_t i = begin; i < sequence.tokens.size(); ++i) {
      prefix = index.prefixes.longer(prefix, sequence.tokens[i]);
      keys.push_back(index.keys.try_emplace(prefix, key_of(i)).first->second);
      index.places[keys.back()].push_back({sequence.batch, sequence.rows[i]});
    }
    index.padding += begin;
    if (!is_padded || !is_pad_used) continue;
    --index.padding;
    prefix = index.prefixes.longer(0, sequence.tokens[begin - 1]);
    const RowKey& first = index.keys.try_emplace(prefix, key_of(begin - 1)).first->second;
    index.places[first].push_back({sequence.batch, sequence.rows[begin - 1]});
    for (std::size_t i = begin; i < sequence.tokens.size(); ++i) {
      prefix = index.prefixes.longer(prefix, sequence.tokens[i]);
      index.keys.try_emplace(prefix, keys[i - begin]);
    }
  }
  return index;
}

std::vector<PlacedTokens> place_all(const std::vector<TokenSequence>& sequences, bool are_whole,
                                    const TokenPrefixes& known) {
  std::vector<PlacedTokens> placed;
  std::map<std::int64_t, std::size_t> ends;
  for (const TokenSequence& sequence : sequences)
    placed.push_back(are_whole ? place_whole(sequence, known) : place_packed(sequence, known, ends));
  return placed;
}

// What sequences begin with several times is padding, or else repeated words.
std::optional<std::uint64_t> repeated_in_front(const std::vector<TokenSequence>& sequences) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const TokenSequence& sequence : sequences)
    if (sequence.leading() > 1) counts[sequence.tokens[0]] += sequence.leading();
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return most == counts.end() ? std::nullopt : std::optional(most->first);
}

}  // namespace

void RowTable::take_tokens_for_keys(RowTable& other) {
  const auto sequences_of = [](const RowTable& table, bool is_whole) {
    std::vector<TokenSequence> sequences;
    for (std::size_t batch = 0; batch < table.batches_.size(); ++batch) {
      const Numbers& column = table.batches_[batch].columns.front();
      const std::int64_t count = std::ssize(column.values);
      const std::int64_t length = is_whole && !column.shape.empty() ? column.shape.back() : count;
      for (std::int64_t row = 0; row < count; ++row) {
        if (row % length == 0) sequences.push_back({.batch = batch, .first_row = row, .rows = {}, .tokens = {}});
        if (column.is_negative[static_cast<std::size_t>(row)]) continue;
        sequences.back().rows.push_back(row);
        sequences.back().tokens.push_back(column.values[static_cast<std::size_t>(row)]);
      }
    }
    return sequences;
  };
  std::vector<TokenSequence> own = sequences_of(*this, true);
  std::vector<TokenSequence> others = sequences_of(other, other.has_sequences());
  const bool are_whole = other.has_sequences();
  const auto count_placed = [](const std::vector<PlacedTokens>& placed) {
    std::ptrdiff_t count = 0;
    for (const PlacedTokens& one : placed)
      count += std::ranges::count_if(one.prefixes, [](const auto& prefix) { return prefix.has_value(); });
    return count;
  };
  TokenIndex index = index_tokens(own, std::nullopt, false);
  std::vector<PlacedTokens> placed = place_all(others, are_whole, index.prefixes);
  if (const auto pad = repeated_in_front(own)) {
    const bool is_pad_used = std::ranges::any_of(others, [&](const TokenSequence& sequence) {
      return std::ranges::find(sequence.tokens, *pad) != sequence.tokens.end();
    });
    TokenIndex padded = index_tokens(own, pad, is_pad_used);
    std::vector<PlacedTokens> placed_so = place_all(others, are_whole, padded.prefixes);
    if (count_placed(placed_so) > count_placed(placed)) index = std::move(padded), placed = std::move(placed_so);
  }
  places_ = std::move(index.places);
  padding_ += index.padding;
  other.places_.clear();
  for (std::size_t k = 0; k < others.size(); ++k) {
    for (std::size_t i = 0; i < placed[k].prefixes.size(); ++i) {
      if (placed[k].prefixes[i])
        other.places_[index.keys.at(*placed[k].prefixes[i])].push_back({others[k].batch, others[k].rows[i]});
      else
        ++(i < placed[k].begin || i >= placed[k].end ? other.padding_ : other.unplaced_);
    }
  }

  // What own sequences end with several times, and has no partner, is padding.
  std::map<std::pair<std::size_t, std::int64_t>, RowKey> key_of_row;
  for (const auto& [key, places] : places_)
    for (const RowPlace& place : places) key_of_row.emplace(std::pair{place.batch, place.row}, key);
  const auto unpaired_end = [&](const TokenSequence& sequence) {
    std::size_t count = 0;
    for (; count < sequence.trailing(); ++count) {
      const auto key = key_of_row.find({sequence.batch, sequence.rows[sequence.rows.size() - 1 - count]});
      if (key == key_of_row.end() || other.places_.contains(key->second)) break;
    }
    return count;
  };
  std::set<std::uint64_t> pads_behind;
  for (const TokenSequence& sequence : own)
    if (!sequence.tokens.empty() && unpaired_end(sequence) > 1) pads_behind.insert(sequence.tokens.back());
  for (const TokenSequence& sequence : own) {
    if (sequence.tokens.empty() || !pads_behind.contains(sequence.tokens.back())) continue;
    for (std::size_t count = unpaired_end(sequence); count > 0; --count) {
      const std::int64_t row = sequence.rows[sequence.rows.size() - count];
      const auto at = places_.find(key_of_row.at({sequence.batch, row}));
      std::erase_if(at->second, [&](const RowPlace& p) { return p.batch == sequence.batch && p.row == row; });
      if (at->second.empty()) places_.erase(at);
      ++padding_;
    }
  }
}

}  // namespace tenscope::compare
