#pragma once
/// The section of report.html about what is to be had for fewer GPUs or less memory. Local.

#include <string>

#include "dstune/report/results.hpp"

namespace dstune {

/// A figure of value against memory, a line for each number of GPUs through those that nothing
/// beats, and these as a table; a sentence where one has it all. Empty where nothing has a value.
std::string front_section(const Report& report);

}  // namespace dstune
