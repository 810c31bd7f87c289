#pragma once
/// How long runs may be silent. Generous: it only has to tell a hang from a slow machine. Local.

#include "dstune/instrument/instrument.hpp"

namespace dstune {

/// The limits of somebody else's code, whose steps nobody here foresees: --trial-timeout says it.
[[nodiscard]] RunLimits limits_of_foreign_code(const RunForecast& forecast);

}  // namespace dstune
