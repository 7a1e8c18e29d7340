#include "viewer/requested_look.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace {

kernels::Look look_at(Of of, const TensorView& a, const TensorView* b) {
  switch (of) {
    case Of::A:
      return kernels::Look(a);
    case Of::B:
      return kernels::Look(*b);
    case Of::Difference:
      return kernels::Look(kernels::LookKind::Difference, a, *b);
    case Of::Relative:
      return kernels::Look(kernels::LookKind::Relative, a, *b);
    case Of::Ulps:
      return kernels::Look(kernels::LookKind::Ulps, a, *b);
  }
  __builtin_unreachable();
}

}  // namespace

Of requested_of(const Parameters& parameters) {
  const std::string word = parameters.text("of", "a");
  if (word == "a") return Of::A;
  if (word == "b") return Of::B;
  if (word == "diff") return Of::Difference;
  if (word == "rel") return Of::Relative;
  if (word == "ulp") return Of::Ulps;
  throw Error(ErrorCode::InvalidArgument, fmt::format("'of' is one of a, b, diff, rel, ulp, and not '{}'", word));
}

kernels::Tolerance requested_tolerance(const Parameters& parameters) {
  kernels::Tolerance tolerance;
  tolerance.relative = parameters.number("rtol", tolerance.relative);
  tolerance.absolute = parameters.number("atol", tolerance.absolute);
  if (tolerance.relative < 0 || tolerance.absolute < 0)
    throw Error(ErrorCode::InvalidArgument, "'rtol' and 'atol' cannot be negative");
  return tolerance;
}

const TensorView& partner_of(const TensorPair& pair) {
  if (!pair.b) throw Error(ErrorCode::NotFound, "this tensor has no partner of the same shape to compare it with");
  const auto& a = pair.a.shape;
  const auto& b = pair.b->shape;
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the tensor and its partner have different shapes: [{}] and [{}]", fmt::join(a, ", "),
                            fmt::join(b, ", ")));
  }
  return *pair.b;
}

kernels::Look requested_look(const TensorPair& pair, Of of) {
  return look_at(of, pair.a, of == Of::A ? nullptr : &partner_of(pair));
}

kernels::Look requested_look(const TensorPair& pair, Of of, const Picture& picture) {
  const Picture::Matrix a = picture.matrix(pair.a);
  if (of == Of::A) return kernels::Look(a.view());
  const Picture::Matrix b = picture.matrix(partner_of(pair));
  const TensorView partner = b.view();
  return look_at(of, a.view(), &partner);
}

}  // namespace tenscope::viewer
