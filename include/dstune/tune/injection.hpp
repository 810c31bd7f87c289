#pragma once
/// Faults on request, for tests of what must survive them: DSTUNE_INJECT in the environment, one or
/// more of `kind@world_rank:experiment` separated by commas. kind: `oom` (the rank's memory budget
/// is nothing for that experiment), `hang` (the rank stops answering before the first step), `die`
/// (the rank kills itself there), `throw` (an exception there). Local.

#include <string>

namespace dstune {

enum class Fault { none, oom, hang, die, throws };

/// The fault that is asked for at this rank in this experiment.
Fault injected_fault(int world_rank, const std::string& experiment);

}  // namespace dstune
