#pragma once
/// This machine's constants of the target's time, by the journal or by tiny engines. Rank 0 only.

#include <functional>

#include "protocol/attempts.hpp"
#include "start/open_job.hpp"

namespace dstune {

/// Puts this machine's constants in the place of those that come with the program: those that an
/// earlier job's journal has, or measured ones. The shipped ones stay where too few engines ran.
void measure_target(OpenJob& ready, AttemptDriver& driver,
                    const std::function<bool()>& is_to_be_ended);

}  // namespace dstune
