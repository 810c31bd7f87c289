#pragma once
/// Arithmetic of sizes in 64 bits that says what has become too large instead of wrapping. Sizes of
/// models, batches and ranks multiply: each factor is one that people give, the product need not
/// be. Local.

#include <cstdint>
#include <string_view>

#include "dstune/base/error.hpp"

namespace dstune {

/// A size that does not fit in 64 bits: more than any machine has.
struct OverflowError : Error {
  using Error::Error;
};

/// Throws OverflowError that says of what: "activations of a micro-batch".
[[noreturn]] void throw_overflow(std::string_view what);

/// The product of all. Throws OverflowError that names `what`.
template <class... Factors>
[[nodiscard]] constexpr std::int64_t checked_product(std::string_view what, std::int64_t first,
                                                     Factors... others) {
  const auto multiply = [&](std::int64_t factor) {
    if (__builtin_mul_overflow(first, factor, &first)) throw_overflow(what);
  };
  (multiply(others), ...);
  return first;
}

/// The sum of all. Throws OverflowError that names `what`.
template <class... Terms>
[[nodiscard]] constexpr std::int64_t checked_sum(std::string_view what, std::int64_t first,
                                                 Terms... others) {
  const auto add = [&](std::int64_t term) {
    if (__builtin_add_overflow(first, term, &first)) throw_overflow(what);
  };
  (add(others), ...);
  return first;
}

/// value · numerator / denominator, rounded towards zero. The product has 128 bits, so that only a
/// result that is too large throws OverflowError. The denominator is not 0.
[[nodiscard]] constexpr std::int64_t checked_share(std::string_view what, std::int64_t value,
                                                   std::int64_t numerator,
                                                   std::int64_t denominator) {
  __extension__ using Wide = __int128;
  const Wide share = static_cast<Wide>(value) * numerator / denominator;
  const auto result = static_cast<std::int64_t>(share);
  if (result != share) throw_overflow(what);
  return result;
}

}  // namespace dstune
