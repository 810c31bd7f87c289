#pragma once
/// A graph of operations on tensors of four dimensions, and its results in double.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <cudnn_graph.h>

namespace dstune::kernels::test {

using Size = std::array<std::int64_t, 4>;

struct GraphTensor {
  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Size size{};
  Size strides{};
  std::int64_t alignment = 1;
  bool is_virtual = false;
  bool is_number = false;  ///< in the host's memory
};

struct GraphOperation {
  enum class Kind { product, pointwise, reduction, reshape };
  Kind kind = Kind::product;
  int mode = 0;  ///< of pointwise operations and reductions
  std::int64_t axis = -1;
  cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT;
  /// b and mask: −1 where there is none.
  std::int64_t x = -1, b = -1, mask = -1, y = -1;
};

struct Graph {
  std::map<std::int64_t, GraphTensor> tensors;  ///< by uid
  std::vector<GraphOperation> operations;

  /// Does it on tensors in memory. What is wrong, or nothing.
  [[nodiscard]] std::string run(const std::map<std::int64_t, void*>& addresses) const;
};

}  // namespace dstune::kernels::test
