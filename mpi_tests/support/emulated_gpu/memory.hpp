#pragma once
/// Memory of the emulated GPUs, and pinned memory of the host. A GPU's can be touched only while
/// there is something that it has to do: who touches it otherwise ends the program.

#include <cstddef>

namespace dstune::emulated {

/// Null where there is too little. By any thread; so are all of these.
void* take_memory(int device, std::size_t bytes);
/// False: no such memory begins there.
bool give_back_memory(void* memory);
void* take_pinned(std::size_t bytes);
bool give_back_pinned(void* memory);

/// Whether all of it is memory of one piece, of a GPU or pinned.
bool reaches(const void* memory, std::size_t bytes);

/// While one of these lives the GPUs' memory can be touched.
class Opened {
 public:
  Opened();
  ~Opened();
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};

}  // namespace dstune::emulated
