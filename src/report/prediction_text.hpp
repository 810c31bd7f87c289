#pragma once
/// Predicted beside measured throughput. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/report/results.hpp"

namespace dstune {

/// Predicted over measured, less 1; nothing where the one or the other is missing.
std::optional<double> prediction_error(const Record& record);

/// Spearman's: Pearson's correlation of the ranks, equal values sharing their mean rank. Lists of
/// equal length; nothing of fewer than two values, or where all of a list are equal.
std::optional<double> rank_correlation(const std::vector<double>& one,
                                       const std::vector<double>& other);

/// Experiments in the order in which they ended, each with its error and the mean of the errors up
/// to it; then the mean error and the rank correlation over all. Empty where nothing was predicted.
std::string prediction_text(const Report& report);

}  // namespace dstune
