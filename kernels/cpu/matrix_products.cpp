// Matrix products of any shape and type: which way serves, and those that were built, kept.
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "backend_parts.hpp"
#include "direct_product.hpp"
#include "dstune/kernels/kernels.hpp"
#include "panel_product.hpp"

namespace dstune::kernels {
namespace {

using products::DirectProduct;
using products::padded;
using products::PanelProduct;
using products::workspace_alignment;

/// oneDNN 3 loses strides beside a dimension of 1: its products of vectors take rows that lie apart
/// for dense ones (seen in 3.7).
bool is_a_vector_that_lies_apart(const MatmulShape& shape) {
  const bool is_dense =
      shape.row_of_a() == (shape.transpose_a ? shape.m : shape.k) && shape.row_of_c() == shape.n;
  return !is_dense && (shape.m == 1 || shape.n == 1 || shape.k == 1);
}

/// oneDNN 2.2.4 adds a bias, or what is there, to other rows where C's rows lie apart and threads
/// share them; 2.6.3 adds it to the right ones.
bool is_added_elsewhere(const MatmulShape& shape) {
  constexpr int right_from_minor = 6;
  static const bool is_old = dnnl_version()->major < 3 && dnnl_version()->minor < right_from_minor;
  return is_old && (shape.has_bias || shape.accumulate) && shape.row_of_c() != shape.n;
}

/// A product in the types it is asked for, or over panels, which are dense and in fp32, where
/// oneDNN has no right code for it.
class Product {
 public:
  explicit Product(const MatmulShape& shape) {
    if (shape.accumulate && shape.has_bias)
      throw std::invalid_argument("a product has a bias or adds to what is there, not both");
    if (is_a_vector_that_lies_apart(shape) || is_added_elsewhere(shape)) {
      panels_.emplace(shape);
      return;
    }
    try {
      direct_.emplace(shape);
    } catch (const dnnl::error&) {
      if (shape.type == DType::f32 && shape.out_type == DType::f32) throw;
      panels_.emplace(shape);
    }
  }

  [[nodiscard]] std::size_t workspace_bytes() const {
    const std::size_t bytes = direct_ ? direct_->scratchpad_bytes() : panels_->workspace_bytes();
    return bytes == 0 ? 0 : bytes + workspace_alignment;
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
    void* aligned = reinterpret_cast<void*>(padded(reinterpret_cast<std::size_t>(workspace)));
    if (direct_) return direct_->run(a, b, bias, c, aligned);
    panels_->run(a, b, bias, c, aligned);
  }

 private:
  std::optional<DirectProduct> direct_;
  std::optional<PanelProduct> panels_;
};

/// A shape and a number of threads, which oneDNN fixes when it builds a primitive.
using Key = std::pair<MatmulShape, int>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const auto& [shape, threads] = key;
    const auto flags = static_cast<std::uint64_t>(
        shape.transpose_a | shape.transpose_b << 1 | shape.accumulate << 2 | shape.has_bias << 3 |
        static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 6);
    std::uint64_t hash = counter_hash(flags, static_cast<std::uint64_t>(threads), 0);
    for (const std::int64_t part : {shape.m, shape.n, shape.k, shape.row_of_a(), shape.row_of_c()})
      hash = counter_hash(hash, static_cast<std::uint64_t>(part), 1);
    return hash;
  }
};

std::mutex products_mutex;

/// The key of a shape on the threads that there are, which oneDNN asks OpenMP for; products_mutex
/// is held.
Key key_of(const MatmulShape& shape) {
  const int threads = cpu_threads();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  return {shape, threads};
}

/// The cached product; products_mutex is held.
Product& product_of(const MatmulShape& shape) {
  static std::unordered_map<Key, Product, KeyHash> products;
  return products.try_emplace(key_of(shape), shape).first->second;
}

}  // namespace

std::size_t matmul_workspace_bytes(const MatmulShape& shape) {
  const std::lock_guard lock(products_mutex);
  // A plan asks for many shapes that are never run: of those only the size is kept.
  static std::unordered_map<Key, std::size_t, KeyHash> sizes;
  const Key key = key_of(shape);
  const auto known = sizes.find(key);
  if (known != sizes.end()) return known->second;
  return sizes.try_emplace(key, Product(shape).workspace_bytes()).first->second;
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
