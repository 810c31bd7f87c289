#pragma once
/// Random numbers of the model of all runs, which takes some tens of thousands for a verdict.
/// Local.

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace dstune {

/// The same numbers for the same seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : bits_(seed) {}

  /// In [0, 1).
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  /// Standard normal: the ziggurat of Marsaglia and Tsang (2000), as Doornik (2005) has it.
  double normal();
  /// Marsaglia and Tsang (2000); `shape` is at least 1.
  double gamma(double shape);
  /// One of several, by the logarithms of their weights, which are lost.
  std::size_t one_of(std::span<double> log_weights);

 private:
  double normal_beyond(bool is_negative);

  std::mt19937_64 bits_;
};

}  // namespace dstune
