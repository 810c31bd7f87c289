// The CUDA kernels, compiled as plain C++ for the emulator.
#include <new>

#include "backend.hpp"
#include "emulator.hpp"

namespace dstune::kernels {

namespace emulated {
extern const Table table;
}

namespace test {

std::vector<std::string> table_names() {
  return {"emulated"};
}

const Table* find_table(const std::string&, std::string&) {
  return &emulated::table;
}

void* take_memory(std::size_t bytes) {
  return ::operator new(bytes);
}

void give_back_memory(void* memory) {
  ::operator delete(memory);
}

void finish_kernels() {}

bool is_emulated() {
  return true;
}

bool has_library_attention() {
  return false;
}

void run_in_way(int way) {
  dstune::test::set_emulated_order(way - 1);
}

}  // namespace test
}  // namespace dstune::kernels
