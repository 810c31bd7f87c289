#include "worker/built_steps.hpp"

#include <algorithm>
#include <utility>

namespace dstune {

BuiltStep* BuiltSteps::find(const std::string& experiment, const TrainingConfig& config,
                            const std::vector<int>& world_ranks) {
  const auto found = std::ranges::find_if(steps_, [&](const BuiltStep& step) {
    return step.experiment == experiment && step.world_ranks == world_ranks &&
           step.config == config && step.steps > 0;
  });
  return found == steps_.end() ? nullptr : &*found;
}

BuiltStep& BuiltSteps::add(const std::string& experiment, const TrainingConfig& config,
                           ProcessGroup& group) {
  drop(experiment);
  use(nullptr);
  for (Arena* const arena : {&device_.arena(), &device_.host_arena(), &device_.input_arena(),
                             &device_.host_input_arena()})
    arena->free();
  BuiltStep& step = steps_.emplace_back(experiment, config, group);
  step.arenas = device_.make_arenas();
  return step;
}

void BuiltSteps::use(BuiltStep* step) {
  if (step == used_) return;
  if (used_ != nullptr) used_->arenas = device_.use(std::move(others_));
  if (step != nullptr) others_ = device_.use(std::move(step->arenas));
  used_ = step;
}

void BuiltSteps::drop(const std::string& experiment) {
  for (auto step = steps_.begin(); step != steps_.end();) {
    const auto next = std::next(step);
    if (step->experiment == experiment) erase(step);
    step = next;
  }
}

void BuiltSteps::drop_all() {
  while (!steps_.empty()) erase(steps_.begin());
}

void BuiltSteps::erase(std::list<BuiltStep>::iterator step) {
  if (used_ == &*step) use(nullptr);
  steps_.erase(step);  // the workload gives its arenas back before they go
}

}  // namespace dstune
