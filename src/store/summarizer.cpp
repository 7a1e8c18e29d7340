#include "store/summarizer.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/summarize.hpp"

namespace tenscope::store {

void Summarizer::take(std::byte* destination) {
  Sketch sketch;
  content_.summary = kernels::summarize(tensor_, destination, part_.is_sketched() ? &sketch : nullptr, part_.part());
  if (part_.is_sketched()) set(sketch);
  has_summary_ = true;
}

void Summarizer::set_known(const Fingerprint& fingerprint, const BlobTable::Known& known, std::uint64_t first_seq) {
  content_.summary = {fingerprint, known.stats};
  has_summary_ = true;
  if (!part_.is_sketched() || !known.sketch || known.sketch->part != part_.id() || known.sketch->seq < first_seq)
    return;
  content_.sketch.reset();
  content_.sketch_of = known.sketch->seq;
}

void Summarizer::set_known(const Fingerprint& fingerprint, const Stats& stats, const Sketch* sketch) {
  content_.summary = {fingerprint, stats};
  has_summary_ = true;
  if (sketch != nullptr && part_.is_sketched()) set(*sketch);
}

void Summarizer::finish() {
  if (!has_summary_) take();
  if (part_.is_sketched() && !has_sketched_ && !content_.sketch_of) set(kernels::sketch(tensor_, part_.part()));
}

std::optional<BlobTable::SketchAt> Summarizer::sketch_at(std::uint64_t seq) const {
  if (!content_.sketch && !content_.sketch_of) return std::nullopt;
  return BlobTable::SketchAt{content_.sketch_of.value_or(seq), part_.id()};
}

// A sum of huge numbers may overflow; then there is no sketch.
void Summarizer::set(const Sketch& sketch) {
  has_sketched_ = true;
  const bool are_finite = std::ranges::all_of(sketch.sums, [](double sum) { return std::isfinite(sum); });
  if (are_finite) content_.sketch = sketch;
}

}  // namespace tenscope::store
