#include "graph_interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::test {
namespace {

void expect(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

std::int64_t elements(const Size& size) {
  return size[0] * size[1] * size[2] * size[3];
}

/// body(index) for every element, the last dimension fastest.
template <class Body>
void for_each(const Size& size, Body body) {
  Size i{};
  for (i[0] = 0; i[0] < size[0]; ++i[0]) {
    for (i[1] = 0; i[1] < size[1]; ++i[1]) {
      for (i[2] = 0; i[2] < size[2]; ++i[2]) {
        for (i[3] = 0; i[3] < size[3]; ++i[3]) body(i);
      }
    }
  }
}

std::int64_t offset(const Size& index, const Size& strides) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < 4; ++d) sum += index[d] * strides[d];
  return sum;
}

/// Where an index of a tensor of `from` falls in one of `to`: shared heads, and dimensions of one.
Size within(const Size& index, const Size& from, const Size& to) {
  Size result{};
  for (std::size_t d = 0; d < 4; ++d) {
    expect(from[d] % to[d] == 0, "sizes that do not fit together");
    result[d] = index[d] * to[d] / from[d];
  }
  return result;
}

bool is_narrow(cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
}
DType type_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 ? DType::bf16
         : type == CUDNN_DATA_HALF   ? DType::f16
                                     : DType::f32;
}

struct Dense {
  Size size{};
  std::vector<double> values;
  [[nodiscard]] std::size_t place(const Size& i) const {
    return static_cast<std::size_t>(((i[0] * size[1] + i[1]) * size[2] + i[2]) * size[3] + i[3]);
  }
  [[nodiscard]] double at(const Size& i) const { return values[place(i)]; }
};

double combine(int mode, double x, double b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1.0 : 0.0;
    case CUDNN_POINTWISE_CMP_GT:
      return x > b ? 1.0 : 0.0;
    default:
      throw std::logic_error("an unexpected operation on two tensors");
  }
}

class Run {
 public:
  Run(const Graph& graph, const std::map<std::int64_t, void*>& addresses)
      : graph_(graph), addresses_(addresses) {}

  void operator()(const GraphOperation& o) {
    Dense y{tensor(o.y).size, {}};
    y.values.resize(static_cast<std::size_t>(elements(y.size)));
    switch (o.kind) {
      case GraphOperation::Kind::product:
        multiply(read(o.x), read(o.b), y);
        break;
      case GraphOperation::Kind::pointwise:
        apply(o, y);
        break;
      case GraphOperation::Kind::reduction:
        reduce(o.mode, read(o.x), y);
        break;
      case GraphOperation::Kind::reshape:
        reshape(tensor(o.x), read(o.x), tensor(o.y), y);
        break;
    }
    write(tensor(o.y), std::move(y));
  }

 private:
  [[nodiscard]] const GraphTensor& tensor(std::int64_t uid) const { return graph_.tensors.at(uid); }

  const Dense& read(std::int64_t uid) {
    if (const auto found = known_.find(uid); found != known_.end()) return found->second;
    const GraphTensor& t = tensor(uid);
    expect(!t.is_virtual, "a virtual tensor that nothing has made");
    Dense dense{t.size, {}};
    for_each(t.size, [&](const Size& i) {
      float value = 0.0F;
      cpu_table("portable")->convert(DType::f32, &value, type_of(t.type), address(t, i), 1);
      dense.values.push_back(value);
    });
    return known_.emplace(uid, std::move(dense)).first->second;
  }

  void write(const GraphTensor& t, Dense dense) {
    expect(known_.count(t.uid) == 0, "a tensor that is made twice, or after it was read");
    for_each(t.size, [&](const Size& i) {
      double& value = dense.values[dense.place(i)];
      auto wide = static_cast<float>(value);
      if (is_narrow(t.type)) {
        std::uint16_t narrow = 0;
        cpu_table("portable")->convert(type_of(t.type), &narrow, DType::f32, &wide, 1);
        cpu_table("portable")->convert(DType::f32, &wide, type_of(t.type), &narrow, 1);
        value = wide;
      }
      if (!t.is_virtual)
        cpu_table("portable")->convert(type_of(t.type), address(t, i), DType::f32, &wide, 1);
    });
    known_.emplace(t.uid, std::move(dense));
  }

  [[nodiscard]] void* address(const GraphTensor& t, const Size& index) const {
    const std::int64_t bytes = is_narrow(t.type) ? 2 : 4;
    return static_cast<char*>(addresses_.at(t.uid)) + offset(index, t.strides) * bytes;
  }

  static void multiply(const Dense& a, const Dense& b, Dense& y) {
    expect(a.size[3] == b.size[2] && y.size[2] == a.size[2] && y.size[3] == b.size[3] &&
               y.size[0] == a.size[0] && y.size[1] == a.size[1],
           "matrices that do not fit together");
    for_each(y.size, [&](const Size& i) {
      const Size heads =
          within({i[0], i[1], 0, 0}, {y.size[0], y.size[1], 1, 1}, {b.size[0], b.size[1], 1, 1});
      double sum = 0.0;
      for (std::int64_t k = 0; k < a.size[3]; ++k)
        sum += a.at({i[0], i[1], i[2], k}) * b.at({heads[0], heads[1], k, i[3]});
      y.values[y.place(i)] = sum;
    });
  }

  void apply(const GraphOperation& o, Dense& y) {
    expect(tensor(o.x).size == y.size, "an operation that changes the size");
    if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
      expect(o.axis >= 0 && o.axis < 4, "an index along no axis");
      for_each(y.size, [&](const Size& i) {
        y.values[y.place(i)] = static_cast<double>(i[static_cast<std::size_t>(o.axis)]);
      });
      return;
    }
    const bool compares = o.mode == CUDNN_POINTWISE_CMP_GE || o.mode == CUDNN_POINTWISE_CMP_GT;
    expect((o.arithmetic == CUDNN_DATA_BOOLEAN) == compares &&
               (tensor(o.y).type == CUDNN_DATA_BOOLEAN) == compares,
           "truth values where numbers are, or the other way round");
    const Dense& x = read(o.x);
    for_each(y.size, [&](const Size& i) {
      const auto b = [&] { return read(o.b).at(within(i, y.size, tensor(o.b).size)); };
      double& result = y.values[y.place(i)];
      if (o.mode == CUDNN_POINTWISE_BINARY_SELECT) {
        expect(tensor(o.mask).type == CUDNN_DATA_BOOLEAN, "a choice by numbers");
        result = read(o.mask).at(i) != 0.0 ? x.at(i) : b();
      } else if (o.mode == CUDNN_POINTWISE_EXP) {
        result = std::exp(x.at(i));
      } else if (o.mode == CUDNN_POINTWISE_LOG) {
        result = std::log(x.at(i));
      } else if (o.mode == CUDNN_POINTWISE_IDENTITY) {
        result = x.at(i);
      } else {
        result = combine(o.mode, x.at(i), b());
      }
    });
  }

  static void reduce(int mode, const Dense& x, Dense& y) {
    const bool is_largest = mode == CUDNN_REDUCE_TENSOR_MAX;
    expect(is_largest || mode == CUDNN_REDUCE_TENSOR_ADD, "an unexpected reduction");
    std::fill(y.values.begin(), y.values.end(),
              is_largest ? -std::numeric_limits<double>::infinity() : 0.0);
    for_each(x.size, [&](const Size& i) {
      double& result = y.values[y.place(within(i, x.size, y.size))];
      result = is_largest ? std::max(result, x.at(i)) : result + x.at(i);
    });
  }

  /// The same memory seen in another way.
  static void reshape(const GraphTensor& x, const Dense& from, const GraphTensor& y, Dense& to) {
    expect(elements(x.size) == elements(y.size), "a reshape to another number of elements");
    std::unordered_map<std::int64_t, double> memory;
    for_each(x.size, [&](const Size& i) { memory[offset(i, x.strides)] = from.at(i); });
    for_each(y.size, [&](const Size& i) {
      const auto found = memory.find(offset(i, y.strides));
      expect(found != memory.end(), "a reshape to other memory");
      to.values[to.place(i)] = found->second;
    });
  }

  const Graph& graph_;
  const std::map<std::int64_t, void*>& addresses_;
  std::map<std::int64_t, Dense> known_;
};

}  // namespace

std::string Graph::run(const std::map<std::int64_t, void*>& addresses) const try {
  std::size_t in_memory = 0;
  for (const auto& [uid, tensor] : tensors) {
    if (tensor.is_virtual) continue;
    ++in_memory;
    const auto found = addresses.find(uid);
    expect(found != addresses.end(), "a tensor without an address");
    expect(reinterpret_cast<std::uintptr_t>(found->second) %
                   static_cast<std::uintptr_t>(tensor.is_number ? 4 : tensor.alignment) ==
               0,
           "a tensor less aligned than was said");
  }
  expect(addresses.size() == in_memory, "an address of no tensor");
  Run step(*this, addresses);
  for (const GraphOperation& operation : operations) step(operation);
  return {};
} catch (const std::exception& error) {
  return error.what();
}

}  // namespace dstune::kernels::test
