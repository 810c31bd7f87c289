#pragma once
/// Memory that a thread moves at once. The tests compile the same kernels against another header of
/// this name, which looks at the addresses.

#include "common/function.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// What lies there, which is a multiple of the Chunk's alignment: a GPU that is asked for it
/// elsewhere is lost to the process.
template <class Chunk>
DSTUNE_FUNCTION const Chunk& at_once(const void* place) {
  return *static_cast<const Chunk*>(place);
}
template <class Chunk>
DSTUNE_FUNCTION Chunk& at_once(void* place) {
  return *static_cast<Chunk*>(place);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
