#pragma once
/// Other values of the process's policy, for benchmarks that ask what a value is worth.

#include <string_view>

namespace dstune {

/// Multiplies a number of `default_policy()`, as "racing.tolerated", before anything has read it.
/// Integers are rounded, and at least 1. By "surrogate.knob" what such a logarithm stands for is
/// multiplied, by "surrogate.knob.freedom" how freely it is learnt.
/// Returns false where no number has this name. Local; not safe beside other threads.
bool change_policy(std::string_view name, double factor);

}  // namespace dstune
