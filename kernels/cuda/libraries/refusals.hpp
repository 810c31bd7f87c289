#pragma once
/// What a library was to do and did not, so that kernels of our own served it: without tensor
/// cores, which whoever reads the times has to know.

#include <string>
#include <vector>

namespace dstune::kernels::cuda {

/// Notes it, once for the process.
void note_refusal(const std::string& what);
/// What was noted since the last call, in order.
std::vector<std::string> take_refusals();

}  // namespace dstune::kernels::cuda
