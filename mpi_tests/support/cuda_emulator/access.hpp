#pragma once
/// Memory that a thread moves at once, in the words of kernels/cuda/native/execution.hpp, for
/// kernels that the emulator does.

#include <cstddef>

#include "emulator.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// Elsewhere than where it can begin it is what nobody reads.
template <class Chunk>
Chunk& at_once(void* place) {
  alignas(Chunk) static std::byte nowhere[sizeof(Chunk)];
  const bool can_begin = dstune::test::watch_access(place, alignof(Chunk));
  return *static_cast<Chunk*>(can_begin ? place : nowhere);
}
template <class Chunk>
const Chunk& at_once(const void* place) {
  return at_once<Chunk>(const_cast<void*>(place));
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
