#include "matmul.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

namespace dstune::kernels {
namespace {

using dnnl::memory;

constexpr std::size_t alignment = 64;

std::size_t padded(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}
std::size_t size_of(DType type) {
  return type == DType::f32 ? 4 : 2;
}
std::size_t bytes_of(DType type, std::int64_t count) {
  return size_of(type) * static_cast<std::size_t>(count);
}

memory::data_type data_type(DType type) {
  return type == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

/// rows × columns, or stored the other way round; `stride` elements from one stored row to the
/// next.
memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride,
                    DType type) {
  return {{rows, columns},
          data_type(type),
          transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  static dnnl::stream in_order(engine());
  return in_order;
}

/// One oneDNN primitive: the terms [first_k, first_k + shape.k) of a product.
class Piece {
 public:
  /// `shape` is the piece's, `whole_k` the product's. Throws dnnl::error where oneDNN has no code.
  Piece(const MatmulShape& shape, std::int64_t first_k, std::int64_t whole_k)
      : a_offset_(bytes_of(shape.type, shape.transpose_a ? first_k * shape.m : first_k)),
        b_offset_(bytes_of(shape.type, shape.transpose_b ? first_k : first_k * shape.n)),
        has_bias_(shape.has_bias) {
    const memory::desc a = matrix(shape.m, shape.k, shape.transpose_a,
                                  shape.transpose_a ? shape.m : whole_k, shape.type);
    const memory::desc b = matrix(shape.k, shape.n, shape.transpose_b,
                                  shape.transpose_b ? whole_k : shape.n, shape.type);
    const memory::desc bias = matrix(1, shape.n, false, shape.n, shape.type);
    const memory::desc c = matrix(shape.m, shape.n, false, shape.n, shape.out_type);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops after;
      after.append_sum(1.0F);
      attributes.set_post_ops(after);
    }
    const dnnl::matmul::desc description =
        has_bias_ ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc chosen(description, attributes, engine());
    primitive_ = dnnl::matmul(chosen);
    scratchpad_bytes_ = chosen.scratchpad_desc().get_size();
    arguments_ = {memory(a, engine(), nullptr), memory(b, engine(), nullptr),
                  memory(c, engine(), nullptr), memory(chosen.scratchpad_desc(), engine(), nullptr),
                  memory(bias, engine(), nullptr)};
  }

  std::size_t scratchpad_bytes() const { return scratchpad_bytes_; }

  void run(const char* a, const char* b, const void* bias, void* c, void* scratchpad) {
    arguments_[0].set_data_handle(const_cast<char*>(a + a_offset_));
    arguments_[1].set_data_handle(const_cast<char*>(b + b_offset_));
    arguments_[2].set_data_handle(c);
    arguments_[3].set_data_handle(scratchpad);
    arguments_[4].set_data_handle(const_cast<void*>(bias));
    const std::array<dnnl_exec_arg_t, 5> list = {{{DNNL_ARG_SRC, arguments_[0].get()},
                                                  {DNNL_ARG_WEIGHTS, arguments_[1].get()},
                                                  {DNNL_ARG_DST, arguments_[2].get()},
                                                  {DNNL_ARG_SCRATCHPAD, arguments_[3].get()},
                                                  {DNNL_ARG_BIAS, arguments_[4].get()}}};
    // The C call: the C++ one wants a map, built on the heap every time.
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream().get(), has_bias_ ? 5 : 4, list.data()),
        "matrix product failed");
  }

 private:
  std::size_t a_offset_;
  std::size_t b_offset_;
  bool has_bias_;
  std::size_t scratchpad_bytes_ = 0;
  dnnl::matmul primitive_;
  std::array<memory, 5> arguments_;
};

/// A whole product: its pieces, and the conversions where the processor has no bf16 product.
class Product {
 public:
  explicit Product(const MatmulShape& shape) : shape_(shape), computed_(shape) {
    try {
      build();
    } catch (const dnnl::error&) {
      if (shape.type == DType::f32 && shape.out_type == DType::f32) throw;
      computed_.type = DType::f32;
      computed_.out_type = DType::f32;
      build();
    }
  }

  std::size_t workspace_bytes() const {
    std::size_t scratchpad = 0;
    for (const Piece& piece : pieces_) scratchpad = std::max(scratchpad, piece.scratchpad_bytes());
    const std::size_t total = scratchpad + a_bytes() + b_bytes() + bias_bytes() + c_bytes();
    return total == 0 ? 0 : total + alignment;
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
    char* free_space = reinterpret_cast<char*>(padded(reinterpret_cast<std::size_t>(workspace)));
    const Table& table = cpu_table();
    const void* wide_a = widen(free_space, a, a_bytes(), shape_.m * shape_.k);
    const void* wide_b = widen(free_space, b, b_bytes(), shape_.k * shape_.n);
    const void* wide_bias = widen(free_space, bias, bias_bytes(), shape_.n);
    void* wide_c = c;
    if (c_bytes() != 0) {
      wide_c = free_space;
      if (shape_.accumulate) {
        table.convert(DType::f32, wide_c, shape_.out_type, c, shape_.m * shape_.n);
      }
      free_space += c_bytes();
    }
    for (Piece& piece : pieces_) {
      piece.run(static_cast<const char*>(wide_a), static_cast<const char*>(wide_b), wide_bias,
                wide_c, free_space);
    }
    if (c_bytes() != 0) {
      table.convert(shape_.out_type, c, DType::f32, wide_c, shape_.m * shape_.n);
    }
  }

 private:
  void build() {
    pieces_.clear();
    // oneDNN's fp32 kernels lose a quarter of their speed on very long sums over an untransposed B.
    constexpr std::int64_t longest_sum = 3072;
    const bool split = computed_.type == DType::f32 && !computed_.transpose_a &&
                       !computed_.transpose_b && computed_.k > 2 * longest_sum;
    const std::int64_t step = split ? longest_sum : computed_.k;
    for (std::int64_t first_k = 0; first_k < computed_.k; first_k += step) {
      MatmulShape part = computed_;
      part.k = std::min(step, computed_.k - first_k);
      part.accumulate = computed_.accumulate || first_k > 0;
      part.has_bias = computed_.has_bias && first_k == 0;
      pieces_.emplace_back(part, first_k, computed_.k);
    }
  }

  std::size_t widened_bytes(DType from, DType to, std::int64_t count) const {
    return from == to ? 0 : padded(bytes_of(to, count));
  }
  std::size_t a_bytes() const {
    return widened_bytes(shape_.type, computed_.type, shape_.m * shape_.k);
  }
  std::size_t b_bytes() const {
    return widened_bytes(shape_.type, computed_.type, shape_.k * shape_.n);
  }
  std::size_t bias_bytes() const {
    return shape_.has_bias ? widened_bytes(shape_.type, computed_.type, shape_.n) : 0;
  }
  std::size_t c_bytes() const {
    return widened_bytes(shape_.out_type, computed_.out_type, shape_.m * shape_.n);
  }

  /// `from` itself where `bytes` is 0, else an fp32 copy at free_space, which moves on.
  const void* widen(char*& free_space, const void* from, std::size_t bytes,
                    std::int64_t count) const {
    if (bytes == 0) return from;
    void* to = free_space;
    cpu_table().convert(DType::f32, to, shape_.type, from, count);
    free_space += bytes;
    return to;
  }

  MatmulShape shape_;
  MatmulShape computed_;  ///< with the types that the pieces work in
  std::vector<Piece> pieces_;
};

/// oneDNN fixes the number of threads when it builds a primitive.
struct Key {
  MatmulShape shape;
  int threads = 1;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const MatmulShape& shape = key.shape;
    const auto flags = static_cast<std::uint64_t>(
        shape.transpose_a | shape.transpose_b << 1 | shape.accumulate << 2 | shape.has_bias << 3 |
        static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 5);
    std::uint64_t hash = counter_hash(flags, static_cast<std::uint64_t>(key.threads), 0);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.m), 1);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.n), 2);
    return counter_hash(hash, static_cast<std::uint64_t>(shape.k), 3);
  }
};

std::mutex products_mutex;

/// The cached product; products_mutex is held.
Product& product_of(const MatmulShape& shape) {
  static std::unordered_map<Key, Product, KeyHash> products;
  const int threads = cpu_threads();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  return products.try_emplace(Key{shape, threads}, shape).first->second;
}

}  // namespace

std::size_t matmul_workspace_bytes(const MatmulShape& shape) {
  const std::lock_guard lock(products_mutex);
  return product_of(shape).workspace_bytes();
}

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace) {
  const std::lock_guard lock(products_mutex);
  product_of(shape).run(a, b, bias, c, workspace);
}

const char* matmul_library() {
  static const std::string text = [] {
    const dnnl_version_t& version = *dnnl::version();
    return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.patch);
  }();
  return text.c_str();
}

}  // namespace dstune::kernels
