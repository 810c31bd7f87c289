#include "dstune/search/tuner.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "tuners.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_flat_tuner(const std::string& type, const PlannedSpace& space,
                                       const TuningOptions& options) {
  if (type == "race") return make_race_tuner(space, options);
  if (type == "model_based") return make_model_based_tuner(space, options);
  require(type == "gridsearch" || type == "random", "a tuner's name");
  return make_ordered_tuner(space, options);
}

std::unique_ptr<Tuner> make_tuner(const std::string& type, const PlannedSpace& space,
                                  const TuningOptions& options) {
  const bool is_size_searched =
      std::any_of(space.members.begin(), space.members.end(),
                  [](const PlannedMember& member) { return member.micro_batch_chain.has_value(); });
  if (is_size_searched && type != "race") return make_phased_tuner(type, space, options);
  return make_flat_tuner(type, space, options);
}

}  // namespace dstune
