#pragma once
/// The arithmetic of clipping by the norm of all gradients.

#include <cmath>
#include <cstdint>

#include "common/function.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct ClipFactor {
  const double* squares;
  std::int64_t count;
  double clip, loss_scale;
  double* norm;
  float* factor;

  DSTUNE_FUNCTION void find() const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += squares[i];
    *norm = sqrt(sum) / loss_scale;
    const double excess = (*norm + 1e-6) / clip;
    // Where it is NaN, too.
    const double divisor = excess > 1.0 ? excess : 1.0;
    *factor = static_cast<float>(1.0 / (divisor * loss_scale));
  }
};

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
