#pragma once
/// The tuners, each in a file of its own. Local.

#include <memory>
#include <string>

#include "dstune/search/tuner.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options);
std::unique_ptr<Tuner> make_model_based_tuner(const PlannedSpace& space,
                                              const TuningOptions& options);
std::unique_ptr<Tuner> make_phased_tuner(const std::string& type, const PlannedSpace& space,
                                         const TuningOptions& options);
std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options);

/// Without phases: every planned member as it is.
std::unique_ptr<Tuner> make_flat_tuner(const std::string& type, const PlannedSpace& space,
                                       const TuningOptions& options);

}  // namespace dstune
