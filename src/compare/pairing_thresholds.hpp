#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Every number by which tensors, modules, rows and sources of two runs are taken for the same thing, or for another
// one. What is noise and what is a mistake, thresholds.hpp says; bounds of memory and time stand beside their use. An
// error is Euclidean, |b - a| / |a|, where nothing else is said. "Chosen" is: such that `make bugs` and the tests of
// engines (tests/test_engines*.py) pair every tensor that belongs together, and no other.
namespace tenscope::compare::pairing {

// ---- by content (content_match.cpp and its parts)

// Levels of noise at which statistics are compared, the tightest first: float32, float16, bfloat16 and 8 bit blocks.
inline constexpr std::array<double, 6> kLevels = {1e-6, 1e-5, 1e-4, 1e-3, 4e-3, 1.5e-2};
// The values of tensors whose statistics agree to a level may be off by this many times as much: statistics are means,
// in which noise cancels. At least and at most so much. Chosen.
inline constexpr double kValuesOfLevel = 30;
inline constexpr double kLeastLimit = 1e-4;
inline constexpr double kLargestLimit = 0.3;
// The error of a sample of elements, as a part of what that of all may be. Chosen.
inline constexpr double kMostOfSample = 1.5;
// How many bits must agree. n elements that agree to a relative error e say n * log2(1 / e) bits, of float32 no more
// than 23 each. Beside statistics that agree 20 bits suffice: a chance of one in a million for each pair that is tried.
// Parts of tensors have no statistics of their own, and there are many of them. Chosen.
inline constexpr double kLeastErrorOfEvidence = 1e-7;
inline constexpr double kBitsBesideStatistics = 20;
inline constexpr double kBitsOfPart = 48;
// Statistics of tensors of one run that hold the same numbers. They are sums in blocks of float32. Chosen.
inline constexpr double kSameContent = 1e-9;
// Where the layout is asked for by name, and its error is beyond this, the values are asked too. Chosen.
inline constexpr double kSureLayout = 1e-3;
// Two tensors of equal names, but other shapes, have the layout in which they agree. Beyond this error the best of many
// layouts may be chance. Also for parts of a tensor. Chosen: 8 bit blocks are off by 0.005, 4 bit blocks by more.
inline constexpr double kLayoutAgrees = 0.03;

// ---- parts of a tensor (content_parts.cpp)

// A part's first element may be off by these parts of the mean size of elements: float32, half, few bits.
inline constexpr std::array<double, 3> kNoiseOfElement = {1e-5, 1e-3, 0.1};
inline constexpr double kLeastPartOfNorm = 0.95;  // no part's norm is larger than the whole's, but for noise
inline constexpr double kRestIsZero = 1e-5;       // of the squares of a whole, which its parts leave out
// One row of a whole: as good as equal; surely that one; how many times better than the second best. Chosen.
inline constexpr double kSameRow = 1e-5;
inline constexpr double kRowAgrees = 0.05;
inline constexpr double kRowMargin = 5;

// ---- what lies otherwise, or is another form (content_forms.cpp, content_oddities.cpp)

// Parameters are in another form where they are off by more than this, or by this many times the median error of
// parameters, in nearly all elements (a row that was not loaded need not have been used), while the results agree to
// this, or to so many times that error. Chosen.
inline constexpr double kOtherForm = 2.5e-5;
inline constexpr double kOtherFormNoise = 4;
inline constexpr double kOtherFormElements = 0.9;
inline constexpr double kSameResult = 1e-4;
inline constexpr double kSameResultNoise = 8;
// How many others must lie alike for one to be odd. Chosen.
inline constexpr std::size_t kFewestAlike = 3;

// ---- by order (content_order.cpp)

// A pair has agreed, or diverged, by its error or this many times the parameters' error. Chosen.
inline constexpr double kAgreed = 1e-3;
inline constexpr double kAgreedNoise = 2;
inline constexpr double kDivergedNoise = 8;
// How much speaks for two tensors: norms are alike by exp(-kNormFalls * |log ratio|), and none below kLeastNorms; twice
// the cosine comes on top, and kNothingSpeaks is what any two have. Below kAlike they are two things; kSameSize speaks
// for tensors of one size where a result is more likely wrong than another one. Chosen.
inline constexpr double kNormFalls = 5;
inline constexpr double kLeastNorms = 0.05;
inline constexpr double kCosineCounts = 2;
inline constexpr double kNothingSpeaks = 0.6;
inline constexpr double kAlike = 1;
inline constexpr double kSameSize = 0.5;
inline constexpr std::int64_t kFewestElements = 16;  // any two tensors of fewer may be alike
// Where the step ends as it should, what is off by more than this many times the parameters' error is something else.
inline constexpr double kNoiseAtEnd = 16;
inline constexpr double kLeastNoiseAtEnd = 0.01;
inline constexpr double kMostNoiseAtEnd = 0.3;
inline constexpr double kNearestRow = 0.5;  // a row of a batch that is nearer than this is that row

// ---- rows (row_match.cpp, row_moves.cpp)

// The part of the rows that must agree along an axis for it to be that of the rows; and for two tensors of other names
// to be the same. Chosen.
inline constexpr double kRowsAgree = 0.5;
inline constexpr double kRowsSurelyAgree = 0.9;
// Rows that stand in another place: the rounding of equal numbers, the part of the differing rows that must be
// explained, and how few differing rows explain themselves. Chosen.
inline constexpr double kSameNumbers = 1e-3;
inline constexpr double kRowsExplained = 0.9;
inline constexpr std::size_t kFewestRows = 3;
inline constexpr std::int64_t kElementsThatTell = 4;  // in a row, by which it can be known among all others

// ---- ranks and stages (run_files.cpp, off_parts.cpp, stage_transfers.cpp)

// Runs are compared as whole tensors where nearly all could be put together, and more of them agree than rank by rank.
inline constexpr double kNearlyAllWholes = 0.9;
inline constexpr double kMoreAgrees = 0.1;
// Runs of as many ranks each are tried as whole tensors up to so many ranks: each rank's part is tried in the place of
// every other's. Measured: 1 s for 4 ranks of a small model, 26 s for 16.
inline constexpr std::size_t kMostRanksPutTogether = 16;
// A rank's part is off where its error is this part of the one that is furthest off. Chosen.
inline constexpr double kPartIsOff = 0.1;
// What one stage of a pipeline sent is known by tensors of so many elements, in so many calls. Chosen.
inline constexpr std::int64_t kTellingElements = 8;
inline constexpr std::size_t kLearntFromCalls = 2;
inline constexpr double kSpoilt = 0.5;                // a value this near to what was sent is a spoilt one
inline constexpr double kSixteenBits = 1.0 / 128;     // values rounded to 16 bits on their way are this near
inline constexpr double kTransferGradientUnits = 16;  // of roundoff: gradients may be added up in another order

// ---- checkpoints (checkpoint_match.cpp, checkpoint_parts.cpp, checkpoint_diff.cpp)

// How far two tensors may be apart that hold the same numbers: so many times the normal rounding of the coarser type
// (a table in checkpoint_match.cpp, measured), at least what float32 rounds, and less than tensors of no relation.
inline constexpr double kTimesRounding = 3;
inline constexpr double kFloat32Rounding = 1e-6;
inline constexpr double kMostRounding = 0.95;
// Beyond this rounding statistics find no partners, and names must say more. Chosen.
inline constexpr double kCoarseRounding = 1e-2;
// Another partner is taken where it is so much nearer. Chosen.
inline constexpr double kClearlyBetter = 0.8;
// A tensor whose rounding leans to one side, other than that of most tensors of its type does, by this part of normal
// rounding, is a changed one; of so many tensors of a type one knows what most do. Chosen.
inline constexpr double kLeansOtherwise = 0.25;
inline constexpr std::size_t kFewestOfType = 4;

// ---- sources (module_code.cpp)

// Classes of other names are the same class where they have this part of the longer one's lines in common. Chosen.
inline constexpr double kLinesOfAnother = 0.5;

}  // namespace tenscope::compare::pairing
