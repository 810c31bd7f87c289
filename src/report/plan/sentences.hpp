#pragma once
/// The answer of a plan in sentences. Local.

#include <string>
#include <vector>

#include "answer.hpp"

namespace dstune {

/// A line before it is wrapped. Lines of the highest rank go first where there are too many.
struct PlanLine {
  std::string text;
  int rank = 0;  ///< 0: it always stays
};

/// `is_whole`: with every reason.
[[nodiscard]] std::vector<PlanLine> answer_lines(const DryRun& plan, const PlanAnswer& answer,
                                                 bool is_whole);

}  // namespace dstune
