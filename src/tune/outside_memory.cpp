#include "outside_memory.hpp"

#include <cstring>

#include "dstune/device/device.hpp"
#include "dstune/group/group_table.hpp"

namespace dstune {
namespace {

void multiply_once(const kernels::Table& table, kernels::DType type) {
  constexpr std::int64_t size = 64;
  const kernels::MatmulShape shape{.m = size, .n = size, .k = size, .type = type, .out_type = type};
  std::vector<float> a(size * size), b(size * size), c(size * size);
  std::vector<std::byte> workspace(table.matmul_workspace_bytes(shape));
  table.matmul(shape, a.data(), b.data(), nullptr, c.data(), workspace.data());
}

}  // namespace

std::vector<std::int64_t> resident_before_experiments(const Communicator& world,
                                                      const kernels::Table& table) {
  for (const kernels::DType type : {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16})
    multiply_once(table, type);
  const std::int64_t mine = process_resident_bytes();
  std::vector<std::int64_t> all;
  for (const Bytes& bytes :
       world.all_gather({reinterpret_cast<const std::byte*>(&mine), sizeof mine})) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
  }
  return all;
}

std::int64_t staging_bytes(int group_size) {
  if (group_size == 1) return 0;
  return group_size * static_cast<std::int64_t>(GroupTable::Options{}.staging_bytes);
}

}  // namespace dstune
