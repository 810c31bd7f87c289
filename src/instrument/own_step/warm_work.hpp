#pragma once
/// The operations of our own step that a process has run: their code is compiled, and libraries
/// have chosen. Local.

#include <cstddef>
#include <unordered_set>

#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {

/// The work of the steps that have run. An operation of another plan is warm if its work is equal.
class WarmWork {
 public:
  [[nodiscard]] bool holds(const StepPlan& plan) const;
  void add(const StepPlan& plan);

 private:
  struct Hash {
    std::size_t operator()(const Work& work) const;
  };
  std::unordered_set<Work, Hash> work_;
};

}  // namespace dstune
