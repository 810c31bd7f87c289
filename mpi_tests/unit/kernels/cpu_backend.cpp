// The processor's tables.
#include <new>

#include "backend.hpp"

namespace dstune::kernels::test {

std::vector<std::string> table_names() {
  return {"portable", "avx2", "avx512", "avx512_bf16"};
}

const Table* find_table(const std::string& name, std::string& why_not) {
  why_not = "not on this processor";
  return cpu_table(name.c_str());
}

void* take_memory(std::size_t bytes) {
  return ::operator new(bytes);
}

void give_back_memory(void* memory) {
  ::operator delete(memory);
}

void finish_kernels() {}

bool is_emulated() {
  return false;
}

bool has_library_attention() {
  return false;
}

void run_in_way(int way) {
  set_cpu_threads(way);
}

}  // namespace dstune::kernels::test
