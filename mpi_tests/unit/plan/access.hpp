#pragma once
/// Which tensors an operation reads and writes, and how many elements of them: said here a second
/// time, from the meaning of each operation, so that a check of a plan does not lean on its
/// builder.

#include <vector>

#include "dstune/plan/step_plan.hpp"

namespace dstune::test {

struct Access {
  View view;
  std::int64_t elements;  ///< at least so many from the view on
  bool write;
};

std::vector<Access> accesses(const Operation& operation, const StepPlan& plan);

}  // namespace dstune::test
