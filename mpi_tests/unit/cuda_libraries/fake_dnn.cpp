#include "fake_dnn.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "graph_interpreter.hpp"

namespace dstune::kernels::test {
namespace {

FakeDnn* current = nullptr;

void expect(bool holds, const char* what) {
  if (!holds && current->fault.empty()) current->fault = what;
}

bool fails() {
  return current->calls++ == current->failing_call;
}

struct Context {
  cudaStream_t stream = nullptr;
};

struct Object {
  struct Attribute {
    cudnnBackendAttributeType_t type;
    std::int64_t count;
    std::vector<char> bytes;
  };

  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<int, Attribute> attributes;
  GraphTensor tensor;
  GraphOperation operation;
  std::vector<GraphTensor> operands;
  std::shared_ptr<Graph> graph;
  int configuration = 0;
  std::int64_t workspace_bytes = 0;

  [[nodiscard]] bool has(int name) const { return attributes.count(name) != 0; }
  template <class T>
  [[nodiscard]] T value(int name, cudnnBackendAttributeType_t as, std::size_t number = 0) const {
    T result{};
    if (!has(name)) {
      expect(false, "an attribute that is missing");
      return result;
    }
    const Attribute& attribute = attributes.at(name);
    expect(attribute.type == as && sizeof(T) * (number + 1) <= attribute.bytes.size(),
           "an attribute of another type");
    std::memcpy(&result, attribute.bytes.data() + number * sizeof(T), sizeof(T));
    return result;
  }
  template <class T>
  [[nodiscard]] std::vector<T> values(int name, cudnnBackendAttributeType_t as) const {
    std::vector<T> result;
    const std::int64_t count = has(name) ? attributes.at(name).count : 0;
    for (std::int64_t i = 0; i < count; ++i)
      result.push_back(value<T>(name, as, static_cast<std::size_t>(i)));
    return result;
  }
  [[nodiscard]] const Object& object(int name) const {
    return *value<Object*>(name, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  }
};

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

Size size_from(const std::vector<std::int64_t>& values) {
  Size size{};
  expect(values.size() == 4, "not four dimensions");
  std::copy_n(values.begin(), 4, size.begin());
  return size;
}

void finish_tensor(Object& o) {
  GraphTensor& t = o.tensor;
  t.uid = o.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64);
  t.type = o.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
  t.size = size_from(o.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64));
  t.strides = size_from(o.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64));
  t.alignment = o.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64);
  t.is_virtual = o.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
                 o.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN);
  t.is_number = o.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
                o.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN);
}

/// The operand's uid; the tensor is remembered.
std::int64_t operand(Object& o, int name) {
  if (!o.has(name)) return -1;
  o.operands.push_back(o.object(name).tensor);
  return o.operands.back().uid;
}

void finish_product(Object& o) {
  const Object& how = o.object(CUDNN_ATTR_OPERATION_MATMUL_DESC);
  expect(how.value<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE) ==
             CUDNN_DATA_FLOAT,
         "sums in other than fp32");
  o.operation.kind = GraphOperation::Kind::product;
  o.operation.x = operand(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  o.operation.b = operand(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  o.operation.y = operand(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
}

void finish_pointwise(Object& o) {
  const Object& how = o.object(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  o.operation.kind = GraphOperation::Kind::pointwise;
  o.operation.mode = how.value<int>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
  o.operation.arithmetic =
      how.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE);
  if (how.has(CUDNN_ATTR_POINTWISE_AXIS))
    o.operation.axis = how.value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64);
  o.operation.x = operand(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  o.operation.b = operand(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  o.operation.mask = operand(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  o.operation.y = operand(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
}

void finish_reduction(Object& o) {
  const Object& how = o.object(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  o.operation.kind = GraphOperation::Kind::reduction;
  o.operation.mode =
      how.value<int>(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
  expect(how.value<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE) ==
             CUDNN_DATA_FLOAT,
         "sums in other than fp32");
  o.operation.x = operand(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  o.operation.y = operand(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
}

void finish_reshape(Object& o) {
  o.operation.kind = GraphOperation::Kind::reshape;
  o.operation.x = operand(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  o.operation.y = operand(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
}

bool is_statistics(const GraphTensor& tensor) {
  return tensor.type == CUDNN_DATA_FLOAT && !tensor.is_virtual && !tensor.is_number &&
         tensor.size[3] == 1;
}

void finish_graph(Object& o) {
  o.graph = std::make_shared<Graph>();
  for (const Object* operation :
       o.values<const Object*>(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    expect(operation->is_final, "an operation that is not final");
    o.graph->operations.push_back(operation->operation);
    for (const GraphTensor& tensor : operation->operands) {
      expect(!is_statistics(tensor) ||
                 tensor.strides == Size{tensor.size[1] * tensor.size[2], tensor.size[2], 1, 1},
             "statistics of which some versions take others");
      const auto [found, is_new] = o.graph->tensors.emplace(tensor.uid, tensor);
      expect(
          is_new || (found->second.size == tensor.size && found->second.strides == tensor.strides &&
                     found->second.type == tensor.type),
          "one name of two tensors");
    }
  }
}

/// The least of them.
std::int64_t statistics_alignment(const Graph& graph) {
  std::int64_t alignment = 256;
  for (const auto& [uid, tensor] : graph.tensors)
    if (is_statistics(tensor)) alignment = std::min(alignment, tensor.alignment);
  return alignment;
}

/// Whether a product of it is in fp32 and in memory.
bool adds_up(const Graph& graph) {
  return std::any_of(graph.operations.begin(), graph.operations.end(),
                     [&](const GraphOperation& operation) {
                       const GraphTensor& y = graph.tensors.at(operation.y);
                       return operation.kind == GraphOperation::Kind::product && !y.is_virtual &&
                              y.type == CUDNN_DATA_FLOAT;
                     });
}

/// What cuDNN 9.19 says for backward on an H200: the scores' gradient in its deterministic form,
/// and where query heads share a key head each one's gradients in both.
std::int64_t workspace_of(const Graph& graph) {
  const auto up = [](std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  };
  std::int64_t bytes = 256;
  for (const GraphOperation& operation : graph.operations) {
    const Size& size = graph.tensors.at(operation.y).size;
    const std::int64_t heads = size[0] * size[1];
    const bool is_scores =
        !adds_up(graph) && operation.kind == GraphOperation::Kind::reshape && size[2] == size[3];
    if (is_scores) bytes += heads * up(size[2], 64) * up(size[3], 128) * 2 / 2;
    if (operation.kind == GraphOperation::Kind::reduction && size[3] > 1)
      bytes += 2 * size[2] * size[3] * graph.tensors.at(operation.x).size[1] * size[0];
  }
  return bytes + current->further_bytes;
}

void finish_heuristic(Object& o) {
  o.graph = o.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).graph;
}

void finish_plan(Object& o) {
  const Object& configuration = o.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  o.graph = configuration.graph;
  o.configuration = configuration.configuration;
  o.workspace_bytes = workspace_of(*o.graph);
  ++current->plans;
}

cudnnStatus_t finish(Object& o) {
  for (const auto& [name, attribute] : o.attributes) {
    if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    for (const Object* part : o.values<const Object*>(name, CUDNN_TYPE_BACKEND_DESCRIPTOR))
      expect(part->is_final, "a part that is not final");
  }
  if (o.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    if (current->failing_allocations) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    if (current->failing.contains(o.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).configuration))
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
  static const std::map<cudnnBackendDescriptorType_t, void (*)(Object&)> parts{
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, finish_tensor},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, finish_product},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, finish_pointwise},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, finish_reduction},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, finish_reshape},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, finish_graph},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, finish_heuristic},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, finish_plan}};
  if (const auto found = parts.find(o.type); found != parts.end()) found->second(o);
  o.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

std::size_t get_version() {
  return current->version;
}

cudnnStatus_t create(cudnnHandle_t* made) {
  if (fails()) return CUDNN_STATUS_NOT_INITIALIZED;
  ++current->alive;
  *made = reinterpret_cast<cudnnHandle_t>(new Context);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy(cudnnHandle_t made) {
  --current->alive;
  delete reinterpret_cast<Context*>(made);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t made, cudaStream_t stream) {
  reinterpret_cast<Context*>(made)->stream = stream;
  expect(stream != nullptr || current->takes_default_stream, "another stream than the caller's");
  return fails() ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  if (fails()) return CUDNN_STATUS_ALLOC_FAILED;
  ++current->alive;
  auto* object = new Object{};
  object->type = type;
  *made = object;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t made) {
  --current->alive;
  delete static_cast<Object*>(made);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  if (fails()) return CUDNN_STATUS_BAD_PARAM;
  auto& object = *static_cast<Object*>(made);
  expect(!object.is_final, "an attribute set when its descriptor is final");
  const auto* const bytes = static_cast<const char*>(values);
  object.attributes[name] = {
      type, count, {bytes, bytes + static_cast<std::size_t>(count) * size_of(type)}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t most, std::int64_t* count,
                            void* values) {
  if (fails()) return CUDNN_STATUS_BAD_PARAM;
  const auto& object = *static_cast<const Object*>(made);
  expect(object.is_final, "a question to a descriptor that is not final");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *count = current->configurations;
    for (int i = 0; i < most && i < current->configurations; ++i) {
      Object& configuration = *static_cast<Object* const*>(values)[i];
      configuration.graph = object.graph;
      configuration.configuration = i;
      configuration.is_final = true;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  expect(name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, "an unexpected question");
  *count = 1;
  std::memcpy(values, &object.workspace_bytes, sizeof(object.workspace_bytes));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t made) {
  if (fails()) return CUDNN_STATUS_NOT_SUPPORTED;
  return finish(*static_cast<Object*>(made));
}

/// Numbers of the host's are those of the call.
void keep_numbers(const Graph& graph, std::map<std::int64_t, void*>& addresses,
                  std::map<std::int64_t, float>& numbers) {
  for (auto& [uid, address] : addresses) {
    const auto found = graph.tensors.find(uid);
    if (found == graph.tensors.end() || !found->second.is_number) continue;
    std::memcpy(&numbers[uid], address, sizeof(float));
    address = &numbers[uid];
  }
}

cudnnStatus_t execute(cudnnHandle_t made, cudnnBackendDescriptor_t plan_made,
                      cudnnBackendDescriptor_t pack_made) {
  if (fails() || current->fails_to_execute) return CUDNN_STATUS_EXECUTION_FAILED;
  const auto& plan = *static_cast<const Object*>(plan_made);
  const auto& pack = *static_cast<const Object*>(pack_made);
  if (current->failing_runs.contains(plan.configuration)) return CUDNN_STATUS_EXECUTION_FAILED;
  expect(plan.is_final && pack.is_final, "execution of what is not final");
  const auto uids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64);
  const auto pointers =
      pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR);
  expect(uids.size() == pointers.size(), "not an address for each name");
  std::map<std::int64_t, void*> addresses;
  for (std::size_t i = 0; i < uids.size(); ++i) addresses[uids[i]] = pointers[i];
  auto* const workspace = pack.value<char*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR);
  expect(reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0, "a workspace that is not aligned");
  // As long as the plan is under way, or in a graph.
  const auto numbers = std::make_shared<std::map<std::int64_t, float>>();
  keep_numbers(*plan.graph, addresses, *numbers);
  const auto bytes = static_cast<std::size_t>(plan.workspace_bytes);
  current->enqueue(reinterpret_cast<Context*>(made)->stream,
                   [graph = plan.graph, addresses, numbers, workspace, bytes] {
                     std::memset(workspace, 0x5a, bytes);
                     const std::string problem = graph->run(addresses);
                     expect(problem.empty(), problem.c_str());
                   });
  ++current->executions;
  current->runs.push_back(plan.configuration);
  current->adds_up = adds_up(*plan.graph);
  current->statistics_alignment = statistics_alignment(*plan.graph);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

FakeDnn::FakeDnn() {
  current = this;
}
FakeDnn::~FakeDnn() {
  current = nullptr;
}

const cuda::DnnLibrary& FakeDnn::functions() {
  static const cuda::DnnLibrary library{
      get_version,        create,        destroy,       set_stream, create_descriptor,
      destroy_descriptor, set_attribute, get_attribute, finalize,   execute};
  return library;
}

}  // namespace dstune::kernels::test
