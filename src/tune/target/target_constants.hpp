#pragma once
/// This machine's constants of the target's time, by the journal or by tiny engines. Rank 0 only.

#include <functional>
#include <string>

#include "control/attempts.hpp"
#include "start/open_job.hpp"

namespace dstune {

/// Puts this machine's constants in the place of those that come with the program: those that an
/// earlier job's journal has, or measured ones. The shipped ones stay where too few engines ran.
void measure_target(OpenJob& ready, AttemptDriver& driver,
                    const std::function<bool()>& is_to_be_ended);

/// A key of all that the measured constants depend on.
std::string key_of_target(const OpenJob& ready);

}  // namespace dstune
