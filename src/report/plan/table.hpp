#pragma once
/// The table of a plan: a row a member, or several lines of a narrow terminal. Local.

#include <string>

#include "answer.hpp"

namespace dstune {

/// Sizes of a configuration that are larger than the second that does not fit are one line.
[[nodiscard]] std::string table_text(const DryRun& plan, const PlanAnswer& answer,
                                     const DryRunStyle& style);

}  // namespace dstune
