#pragma once
/// What the kernels' tests run on. One of these is linked to each of their programs: the tables of
/// the processor, the CUDA kernels emulated, or those on a GPU.

#include <cstddef>
#include <string>
#include <vector>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::test {

std::vector<std::string> table_names();
/// Null where this machine lacks it; `why_not` then says why.
const Table* find_table(const std::string& name, std::string& why_not);

/// Memory that both the kernels and the tests can follow. Taking and giving back wait for kernels.
void* take_memory(std::size_t bytes);
void give_back_memory(void* memory);
/// Returns when the kernels called so far are done.
void finish_kernels();

/// Whether kernels take thousands of times as long as elsewhere, so that tests of many sizes take a
/// part of them.
bool is_emulated();

/// Whether attention in 16 bits is a library's, which does not do all shapes.
bool has_library_attention();

/// 1, 2, 3: ways to run that must give the same bits.
void run_in_way(int way);

template <class T>
struct KernelMemory {
  using value_type = T;
  KernelMemory() = default;
  template <class U>
  KernelMemory(const KernelMemory<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(take_memory(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) { give_back_memory(memory); }
  bool operator==(const KernelMemory&) const { return true; }
};
/// What kernels read beside tensors.
template <class T>
using KernelVector = std::vector<T, KernelMemory<T>>;
using Tokens = KernelVector<std::int32_t>;

}  // namespace dstune::kernels::test
