#pragma once
/// Powers and inverses by a GPU's own instructions, one each: exact to about 22 bits, which is far
/// below what 16-bit storage rounds. On the emulator they have the largest error that PTX's manual
/// allows, so that the tests see it; powers of whole numbers have none.

#include "common/formulas.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// 2^x; 0 where that is no normal number.
DSTUNE_FUNCTION float quick_power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  const float error = x == floorf(x) ? 0.0F : 0x1p-22F;
  return x < -126.0F ? 0.0F : exp2f(x) * (1.0F + error);
#endif
}

/// e^x, exact to 17 bits and more where |x| < 88: the product is rounded.
DSTUNE_FUNCTION float quick_exponential(float x) {
  return quick_power_of_two(x * 1.44269504F);
}

/// 1 / x; 0 where that is no normal number.
DSTUNE_FUNCTION float quick_inverse(float x) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
#else
  const float inverse = 1.0F / x;
  const bool is_normal = !(fabsf(inverse) < 0x1p-126F);
  return is_normal ? inverse * (1.0F + 0x1p-23F) : 0.0F;
#endif
}

struct Quick {
  DSTUNE_FUNCTION static float power(float x) { return quick_exponential(x); }
  DSTUNE_FUNCTION static float inverse(float x) { return quick_inverse(x); }
};

/// step(Exact{}) in fp32, which is to have the bits of a processor; step(Quick{}) else.
template <class Step>
DSTUNE_DEVICE void with_arithmetic(DType type, Step step) {
  if (type == DType::f32) {
    step(Exact{});
  } else {
    step(Quick{});
  }
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
