#pragma once
/// The options of a job and of a plan, as what they stand for. Local.

#include "option_values.hpp"
#include "options.hpp"

namespace dstune {

/// The value of --verify without a script: the library would take the next word for one.
inline constexpr const char* own_script = "-";

/// Fills in the job, the level of the log and its colours. Throws UsageError.
void fill(const OptionValues& given, CommandLine& line);

}  // namespace dstune
