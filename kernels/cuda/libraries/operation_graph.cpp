#include "operation_graph.hpp"

namespace dstune::kernels::cuda {
namespace {

void check(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) throw DnnRefusal{status};
}

}  // namespace

Descriptor::Descriptor(const DnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(&library), descriptor_(nullptr, library.destroy_descriptor) {
  cudnnBackendDescriptor_t made = nullptr;
  check(library.create_descriptor(type, &made));
  descriptor_.reset(made);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     std::int64_t count, const void* values) {
  check(library_->set_attribute(get(), name, type, count, values));
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get());
}

void Descriptor::finalize() {
  check(library_->finalize(get()));
}

std::int64_t Descriptor::number(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  std::int64_t count = 0;
  check(library_->get_attribute(get(), name, CUDNN_TYPE_INT64, 1, &count, &value));
  if (count != 1) throw DnnRefusal{};
  return value;
}

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type) const {
  std::int64_t count = 0;
  check(library_->get_attribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> addresses;
  for (std::int64_t i = 0; i < count; ++i)
    addresses.push_back(all.emplace_back(*library_, type).get());
  std::int64_t filled = 0;
  check(library_->get_attribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &filled,
                                addresses.data()));
  all.erase(all.begin() + filled, all.end());
  return all;
}

Dimensions packed_strides(const Dimensions& size) {
  return {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
}

OperationGraph::Tensor OperationGraph::add(std::int64_t uid, cudnnDataType_t type,
                                           const Dimensions& size, const Dimensions& strides,
                                           std::int64_t alignment, Place place) {
  constexpr bool yes = true;
  Descriptor tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (place == Place::nowhere) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, yes);
  if (place == Place::argument) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, yes);
  tensor.finalize();
  tensors_.push_back(std::move(tensor));
  sizes_.push_back(size);
  return tensors_.size() - 1;
}

OperationGraph::Tensor OperationGraph::in_memory(std::int64_t uid, cudnnDataType_t type,
                                                 const Dimensions& size, const Dimensions& strides,
                                                 std::int64_t alignment) {
  return add(uid, type, size, strides, alignment, Place::memory);
}

OperationGraph::Tensor OperationGraph::number(std::int64_t uid) {
  return add(uid, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, sizeof(float), Place::argument);
}

OperationGraph::Tensor OperationGraph::between(cudnnDataType_t type, const Dimensions& size) {
  return between(type, size, packed_strides(size));
}

OperationGraph::Tensor OperationGraph::between(cudnnDataType_t type, const Dimensions& size,
                                               const Dimensions& strides) {
  const auto uid = first_unseen_uid + static_cast<std::int64_t>(tensors_.size());
  return add(uid, type, size, strides, default_alignment, Place::nowhere);
}

void OperationGraph::operate(
    cudnnBackendDescriptorType_t type,
    std::initializer_list<std::pair<cudnnBackendAttributeName_t, const Descriptor*>> attributes) {
  Descriptor& operation = operations_.emplace_back(library_, type);
  for (const auto& [name, value] : attributes) {
    if (value != nullptr) operation.set(name, *value);
  }
  operation.finalize();
}

void OperationGraph::multiply(Tensor a, Tensor b, Tensor product) {
  Descriptor& how = kinds_.emplace_back(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize();
  operate(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
          {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, &tensors_[a]},
           {CUDNN_ATTR_OPERATION_MATMUL_BDESC, &tensors_[b]},
           {CUDNN_ATTR_OPERATION_MATMUL_CDESC, &tensors_[product]},
           {CUDNN_ATTR_OPERATION_MATMUL_DESC, &how}});
}

void OperationGraph::pointwise(cudnnPointwiseMode_t mode, const Operands& operands, Tensor y,
                               cudnnDataType_t arithmetic, std::optional<std::int64_t> axis) {
  Descriptor& how = kinds_.emplace_back(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, arithmetic);
  if (axis) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *axis);
  how.finalize();
  const auto given = [&](Tensor t) { return t == none ? nullptr : &tensors_[t]; };
  operate(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
          {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &how},
           {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &tensors_[operands.x]},
           {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, given(operands.b)},
           {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, given(operands.mask)},
           {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &tensors_[y]}});
}

void OperationGraph::reduce(cudnnReduceTensorOp_t how_reduced, Tensor x, Tensor y) {
  Descriptor& how = kinds_.emplace_back(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how_reduced);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize();
  operate(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
          {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, &how},
           {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &tensors_[x]},
           {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &tensors_[y]}});
}

void OperationGraph::reshape(Tensor x, Tensor y) {
  operate(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
          {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &tensors_[x]},
           {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &tensors_[y]}});
}

std::vector<Descriptor> OperationGraph::plans(const PlanTarget& target,
                                              std::int64_t max_workspace_bytes,
                                              std::size_t max_plans) const {
  Descriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& operation : operations_) operations.push_back(operation.get());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(operations.size()), operations.data());
  if (target.handle != nullptr)
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  graph.finalize();

  Descriptor advice(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  advice.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  advice.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties != nullptr)
    advice.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  advice.finalize();
  std::vector<Descriptor> made;
  DnnRefusal last;
  for (const Descriptor& configuration :
       advice.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
    if (made.size() == max_plans) break;
    try {
      Descriptor plan(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (target.handle != nullptr)
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
      if (target.properties != nullptr)
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
      plan.finalize();
      if (plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) <= max_workspace_bytes)
        made.push_back(std::move(plan));
    } catch (const DnnRefusal& refusal) {
      last = refusal;  // the next may do
    }
  }
  if (made.empty()) throw last;
  return made;
}

}  // namespace dstune::kernels::cuda
