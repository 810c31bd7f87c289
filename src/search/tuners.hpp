#pragma once
/// The tuners, each in a file of its own. Local.

#include <memory>

#include "dstune/search/tuner.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options);
std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options);

}  // namespace dstune
