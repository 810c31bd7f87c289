#pragma once
/// What is to be had for fewer GPUs, less memory or more per GPU. Local.

#include <cstddef>
#include <string>
#include <vector>

#include "dstune/report/results.hpp"

namespace dstune {

/// The rows that no other beats: none has at least as good a value of the metric on at most as many
/// GPUs with at most as much memory of the fullest rank (the target's, where that was planned), and
/// is better in one of the three. By rising number of GPUs, then the best first; of equal rows the
/// first.
std::vector<std::size_t> front_rows(const Report& report);

/// As a table, with throughput a GPU beside it; empty where one row has it all.
std::string front_text(const Report& report);

}  // namespace dstune
