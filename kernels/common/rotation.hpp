#pragma once
/// A pair of elements turned by an angle, for a Vector of any backend.

#include "common/function.hpp"
#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct Pair {
  Vector low, high;
};

DSTUNE_FUNCTION Pair turned(Pair pair, Vector cosine, Vector sine) {
  return {multiply_add(pair.low, cosine, -(pair.high * sine)),
          multiply_add(pair.high, cosine, pair.low * sine)};
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
