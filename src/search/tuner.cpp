#include "dstune/search/tuner.hpp"

#include "dstune/base/error.hpp"
#include "tuners.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_tuner(const std::string& type, const PlannedSpace& space,
                                  const TuningOptions& options) {
  if (type == "race") return make_race_tuner(space, options);
  require(type == "gridsearch" || type == "random", "a tuner that is built");
  return make_ordered_tuner(space, options);
}

}  // namespace dstune
