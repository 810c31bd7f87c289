#pragma once
/// What is to be had for fewer GPUs, less memory or more per GPU. Local.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dstune/report/results.hpp"

namespace dstune {

/// What a row gives, and what it takes.
struct Offer {
  std::size_t row = 0;
  double value = 0;  ///< of the metric
  int num_gpus = 0;
  std::int64_t memory_bytes = 0;  ///< of the fullest rank, the target's where that was planned
  /// No other beats it: none has at least as good a value on at most as many GPUs with at most as
  /// much memory, and is better in one of the three, or equal and earlier.
  bool is_on_front = false;
};

/// Of every row with a value. By rising number of GPUs, then the best first.
std::vector<Offer> offers_of(const Report& report);
/// Those of them that are on the front.
std::vector<Offer> front_of(const Report& report);

/// The front as a table, with throughput a GPU beside it; empty where one row has it all.
std::string front_text(const Report& report);

}  // namespace dstune
