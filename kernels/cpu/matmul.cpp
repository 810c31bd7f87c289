#include "matmul.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include <omp.h>

#include "direct_product.hpp"
#include "panel_product.hpp"

namespace dstune::kernels {
namespace {

/// A product in the types it is asked for, or over panels where the processor has no code for them.
class Product {
 public:
  explicit Product(const MatmulShape& shape) {
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
    if (direct_) {
      direct_->run(a, b, bias, c, aligned);
    } else {
      panels_->run(a, b, bias, c, aligned);
    }
  }

 private:
  std::optional<DirectProduct> direct_;
  std::optional<PanelProduct> panels_;
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
        static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 6);
    std::uint64_t hash = counter_hash(flags, static_cast<std::uint64_t>(key.threads), 0);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.m), 1);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.n), 2);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.row_of_a()), 3);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.row_of_c()), 4);
    return counter_hash(hash, static_cast<std::uint64_t>(shape.k), 5);
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
