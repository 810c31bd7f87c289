#pragma once

#include "dstune/core/interval.hpp"
#include "dstune/report/results.hpp"

namespace dstune {

/// What the incumbent, which was measured ok, means for a challenger's step times. Nothing to race
/// against where its times bound nothing. Local.
[[nodiscard]] RaceBar race_bar(const Report& report, const Row& incumbent,
                               const Experiment& challenger);

}  // namespace dstune
