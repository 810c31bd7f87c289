#pragma once
/// A graph of operations in cuDNN's terms, and what the library makes of it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "libraries/libraries.hpp"

namespace dstune::kernels::cuda {

/// The library refused: there are kernels of our own.
struct DnnRefusal {
  cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
};

/// A descriptor of the library, destroyed with it. All throw DnnRefusal.
class Descriptor {
 public:
  Descriptor(const DnnLibrary& library, cudnnBackendDescriptorType_t type);

  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other);
  void finalize();
  /// The value of an attribute that has one.
  [[nodiscard]] std::int64_t number(cudnnBackendAttributeName_t name) const;
  /// Returns as many descriptors of a type as the attribute has.
  [[nodiscard]] std::vector<Descriptor> descriptors(cudnnBackendAttributeName_t name,
                                                    cudnnBackendDescriptorType_t type) const;

 private:
  const DnnLibrary* library_;
  std::unique_ptr<void, cudnnStatus_t (*)(void*)> descriptor_;
};

/// Batch, head, row, column.
using Dimensions = std::array<std::int64_t, 4>;

/// The GPU that a graph is planned for: a handle's, or one that need not be there, by its
/// properties (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

class OperationGraph {
 public:
  explicit OperationGraph(const DnnLibrary& library) : library_(library) {}

  /// The index of a tensor of the graph.
  using Tensor = std::size_t;
  /// One in memory, which begins at a multiple of `alignment` bytes.
  Tensor in_memory(std::int64_t uid, cudnnDataType_t type, const Dimensions& size,
                   const Dimensions& strides, std::int64_t alignment = default_alignment);
  /// A number, which the caller gives with the addresses.
  Tensor number(std::int64_t uid);
  /// One that need not exist.
  Tensor between(cudnnDataType_t type, const Dimensions& size);
  Tensor between(cudnnDataType_t type, const Dimensions& size, const Dimensions& strides);

  void multiply(Tensor a, Tensor b, Tensor product);
  /// y = x `mode` b; y = mask ? x : b for a selection; y = the number of each element's row (axis
  /// 2) or column (3) for CUDNN_POINTWISE_GEN_INDEX, which alone has an axis.
  struct Operands {
    Tensor x;
    Tensor b = none;
    Tensor mask = none;
  };
  void pointwise(cudnnPointwiseMode_t mode, const Operands& operands, Tensor y,
                 cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT,
                 std::optional<std::int64_t> axis = {});
  void reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y);
  /// The same elements under another size.
  void reshape(Tensor x, Tensor y);

  [[nodiscard]] const Dimensions& size(Tensor tensor) const { return sizes_[tensor]; }

  /// The plans that execute it: the first `max_plans` of the library's configurations, in the order
  /// in which it recommends them, that it can make for the GPU; at least one. Those that need more
  /// than `max_workspace_bytes` are left out.
  [[nodiscard]] std::vector<Descriptor> plans(const PlanTarget& target,
                                              std::int64_t max_workspace_bytes,
                                              std::size_t max_plans) const;

 private:
  static constexpr Tensor none = static_cast<Tensor>(-1);
  static constexpr std::int64_t first_unseen_uid = 1000;
  static constexpr std::int64_t default_alignment = 16;

  enum class Place { memory, nowhere, argument };
  Tensor add(std::int64_t uid, cudnnDataType_t type, const Dimensions& size,
             const Dimensions& strides, std::int64_t alignment, Place place);
  /// One more operation, with these descriptors as its attributes; null: without that one.
  void operate(
      cudnnBackendDescriptorType_t type,
      std::initializer_list<std::pair<cudnnBackendAttributeName_t, const Descriptor*>> attributes);

  const DnnLibrary& library_;
  std::vector<Descriptor> tensors_;
  std::vector<Dimensions> sizes_;
  std::vector<Descriptor> kinds_;  ///< what operations refer to
  std::vector<Descriptor> operations_;
};

/// The strides of a tensor whose elements lie side by side.
Dimensions packed_strides(const Dimensions& size);

}  // namespace dstune::kernels::cuda
