#pragma once

#include <cstddef>
#include <cstdint>

// Every number by which the comparison of two runs tells rounding noise from a mistake, and where it comes from.
// docs/diff.md says the same in words; what belongs together is decided by pairing_thresholds.hpp. "Measured" is: on
// attention, convolutions and matrix products of up to 2048 terms, written in two correct ways. "Chosen" is: such that
// `make bugs` names every mistake and raises no false alarm.
namespace tenscope::compare::thresholds {

// How large may the difference of two correct implementations be, in units of roundoff of the tensor's largest value?
// Measured: 1 to 15 units in float32 and float64, below 1.2 units in the half types, which round once at the end.
inline constexpr double kWideUnits = 500;
inline constexpr double kHalfUnits = 3;
// The Euclidean size of a difference between two correct results of a half type: each element is off by one unit at
// most.
inline constexpr double kHalfUnitsL2 = 1;

// From which Euclidean size on, in units of roundoff, is a difference that correlates with the values themselves
// systematic (a changed factor or epsilon)? Noise has random signs: over 32 elements or more it correlates by 0.5 less
// than once in a hundred times (the deviation of a cosine of n random numbers is 1 / sqrt(n)). The sizes are chosen.
inline constexpr double kCorrelated = 0.5;
inline constexpr double kProportional = 0.95;
inline constexpr double kCorrelatedUnits = 20;
inline constexpr double kProportionalUnits = 8;
inline constexpr double kCorrelatedUnitsHalf = 0.5;
inline constexpr std::int64_t kEnoughElements = 32;

// Where noise was measured (noise_profile.hpp): how many times that may two correct implementations differ? Measured on
// a GPT in bfloat16 of which six parts were written in other correct ways: 1.0 times at most, but for the part of the
// difference that goes with the values themselves, which is 0.08 of the noise. Chosen, four times that and more.
inline constexpr double kTimesMeasured = 4;
inline constexpr double kPartAlongValues = 0.1;
// What was measured counts as so many units of roundoff at least: of the largest value, Euclidean, and along the values
// themselves, where a constant that is rounded otherwise makes a factor. Chosen.
struct MeasuredUnits {
  double max, l2, systematic;
};
inline constexpr MeasuredUnits kMeasuredWide = {4, 1, 0.5};
inline constexpr MeasuredUnits kMeasuredHalf = {0.75, 0.25, 0.125};
// From this relative size on, noise hides whatever else happens there, which is said. Chosen.
inline constexpr double kNoiseHidesAll = 0.1;

// A call that was made once more in a wider type (oracle.cpp). How far from that may a correct result be, in units of
// roundoff of its largest value? A half type rounds after every operation of the call, not once at its end. Measured
// on every module of five models: up to 7.2 units in float32, up to 2.4 in the half types. Chosen, ten times that.
inline constexpr double kOracleUnits = 100;
inline constexpr double kOracleUnitsHalf = 20;
// One run is wrong, and the other is not, where it is this many times as far away. Chosen.
inline constexpr double kOracleRatio = 10;
// Two widened calls of inputs that are equal in bits compute the same where they differ by no more. Chosen: what a
// wider type rounds is below a thousandth of a unit, also after some thousand additions.
inline constexpr double kOracleSame = 0.1;

// How many times the noise of its inputs may a place hand on? Gradients cancel more than activations, and an optimizer
// that divides by the gradients' size more than those. Chosen.
inline constexpr double kForwardAmplification = 30;
inline constexpr double kBackwardAmplification = 100;
inline constexpr double kOptimizerAmplification = 10000;

// Which part of integers or bools that were computed from noisy inputs may have fallen the other way (an argmax, a
// mask)? Chosen.
inline constexpr double kFlippedPart = 0.02;

// A gradient's size counts as this part of the largest gradient of its module at least: a bias before a normalisation
// has a gradient of nothing but noise. Chosen.
inline constexpr double kGradientFloor = 0.1;

// Below this part of the largest gradient of a step one may be nothing but rounding (of a key's bias, say). Chosen.
inline constexpr double kGradientOfNothing = 1e-5;

// A gradient inside a module may be what is left of much larger ones that cancel (a query's, where all keys are alike).
// Where noise arrives, a difference of this many units of roundoff of the gradient that arrives is noise too. Chosen.
inline constexpr double kArrivingUnits = 1;

// An optimizer's update (update.cpp). Elements count whose gradients agree to kUpdateGradient; at least kUpdateElements
// of them; their updates must agree in the median to kUpdateMistake, or to what noise and rounding explain. Chosen.
inline constexpr double kUpdateGradient = 1e-3;
inline constexpr std::int64_t kUpdateElements = 16;
inline constexpr double kUpdateMistake = 2e-3;
inline constexpr double kUpdateFromGradient = 100;
inline constexpr double kUpdateFromRounding = 16;
inline constexpr std::int64_t kUpdateBlocks = 64;  // of 512 elements are looked at

// Initial values (draw.cpp) are another draw of the same distribution where mean, deviation, number of zeros and
// correlation differ by no more than this many of their own standard errors, which is met once in two million draws.
inline constexpr double kDrawErrors = 5;
// Half the range of a tensor, in its deviations: a uniform distribution has 1.73 at most, kDrawTailElements or more
// normal numbers have 2.3 and more, but for one draw in ten thousand.
inline constexpr double kUniformTail = 1.9;
inline constexpr double kNormalTail = 2.2;
inline constexpr std::int64_t kDrawTailElements = 256;

// Numbers that are added to attention's scores: from this on downwards they forbid. Larger masks are not looked into.
inline constexpr double kMasked = -1e4;
inline constexpr std::int64_t kMaskElements = 1 << 24;

// A difference has no effect where what the call returns differs by this much less, and by no more than noise. Chosen:
// a slightly wrong epsilon stays what it is from module to module.
inline constexpr double kWithoutEffect = 1000;

// Runs that were paired by content (two engines). The Euclidean difference may be kEngineNoise, or twice that of the
// parameters, and kEngineGrowth times the largest that was harmless before. Below that a difference is systematic where
// its cosine with the values is kEngineCosine, and kEngineSigma standard deviations of a cosine of random numbers, and
// twice what was harmless before. Measured on one model in five engines: clean runs stay below 7 deviations.
inline constexpr double kEngineNoise = 2.5e-5;
inline constexpr double kEngineGrowth = 4;
inline constexpr double kEngineCosine = 0.25;
inline constexpr double kEngineSigma = 10;

// Parts of a tensor that ranks have (logical_match.cpp). Wholes are taken to lie alike where their Euclidean difference
// is no more than this, which says how parts belong together, and nothing of whether it is noise. Chosen: noise of
// other sums is far below it, and of two arrangements at most one is that near by chance.
inline constexpr double kPartsAgree = 1e-3;
inline constexpr double kPartsAgreeHalf = 5e-2;
// Where none agrees, a more far-fetched one is taken if its difference is less than this part of a simpler one's.
inline constexpr double kMuchNearer = 0.75;
inline constexpr double kMuchNearerLoss = 0.1;  // of two that agree
// How far the factor of gradients may be from a ratio of numbers of parts.
inline constexpr double kFactorOfMeans = 0.02;
// From which part of the modules' results on do ranks share their work that have them in common? In the benchmark's
// tensor parallel layouts it is about half of them, elsewhere next to none.
inline constexpr double kResultsInCommon = 0.25;

// From how many times the noise of what it depends on is a difference certainly more than noise? Chosen.
inline constexpr double kFarFromNoise = 100;

// Statistics other than the extremes are sums in blocks of float32: how far they may be off, as a part of the largest
// value. 64 additions of float32 are off by 64 units at most.
inline constexpr double kStatisticsError = 1e-5;

// Estimates from sketches (sketch_estimate.cpp) count as certain beyond this many of their standard errors.
inline constexpr double kEstimateErrors = 3;
// One of the 64 sums of a difference stands out where it is this many times a typical one: of normal numbers, one pair
// of sketches in a million has such a sum.
inline constexpr double kSumStandsOut = 6;
// Of sums below this, or beyond its inverse, the squares of what they differ by may be no numbers of 64 bits. Chosen:
// 64 squares, and those of differences in the 53rd bit, are well inside.
inline constexpr double kLeastSquared = 1e-130;
// By how much more must an optimizer's update be off by a factor than in any other way, for the factor to be told from
// sketches? Chosen.
inline constexpr double kUpdateOfFactor = 3;

// How a computation is known by its numbers (replay.cpp): the Euclidean difference between what it makes of the
// recorded sources and the recorded result. A sum is rounded once or twice; what is left out of it must not pass for
// rounding. Other computations have settings that are not known (an epsilon, the order of their sums). Columns are told
// by kReplayRows rows, a curve by so many elements. Chosen.
inline constexpr double kReplayUnits = 64;
inline constexpr double kReplayUnitsHalf = 3;
inline constexpr double kReplayFit = 1e-3;
inline constexpr double kReplayCurve = 0.02;
inline constexpr double kReplaySketch = 1e-4;  // of sums of sketches, which are rounded by themselves
inline constexpr std::int64_t kReplayRows = 8;
inline constexpr std::size_t kReplayCurveElements = 256;
// How much of a tensor is looked at for that: elements; products of a matrix, and columns of its result.
inline constexpr std::int64_t kReplayElements = 1 << 16;
inline constexpr std::int64_t kReplayProducts = 1 << 26;
inline constexpr std::int64_t kReplayColumns = 256;
inline constexpr std::int64_t kReplayLength = 4096;  // of a sequence
inline constexpr std::int64_t kReplayQueries = 16;   // of each of four sequences

// Without a reference (check.cpp): a gradient this much smaller than its module's largest, in units of roundoff, may be
// all rounding; at most this part. Chosen: the gradient of a key's bias is zero but for rounding.
inline constexpr double kCheckNoiseUnits = 64;
inline constexpr double kCheckMostNoise = 0.01;

// Lists in a report beyond these are counted.
inline constexpr std::size_t kListedClasses = 10;
inline constexpr std::size_t kListedCalls = 5;
inline constexpr std::size_t kListedAttributes = 200;

}  // namespace tenscope::compare::thresholds
