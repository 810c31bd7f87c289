#pragma once
/// Matrix products by cuBLASLt. The first use of a shape asks the library for its candidates and,
/// where there are several, times each of them; the fastest serves the shape from then on, in all
/// experiments of the process. Later uses allocate nothing and wait for nothing. Where the library
/// fails for want of memory CudaOutOfMemory is thrown, and the next use begins anew.
///
/// Sums are fp32 ones, also over 16-bit operands and where a product is cut along k; fp32 operands
/// are multiplied as fp32 numbers, not as TF32. Results are the same in every run of one algorithm;
/// since the clock chooses it, two processes may differ in the last bits: Choice::first is for
/// those that must not.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "dstune/kernels/kernels.hpp"
#include "libraries/blas_library.hpp"
#include "libraries/choice.hpp"
#include "libraries/gpu.hpp"

namespace dstune::kernels::cuda {

class MatrixProducts {
 public:
  /// What serves where the library does not.
  struct OwnKernels {
    decltype(Table::matmul) matmul;
    void (*add_bias)(const MatmulShape&, const void* bias, void* c);
  };

  /// `library` may be null.
  MatrixProducts(const BlasLibrary* library, Gpu& gpu, OwnKernels own, Choice choice);

  /// matmul() of the table. A shape's first use, unless its stream records a graph, runs the
  /// product several times and waits for it; where it adds to C it takes memory of C's size for so
  /// long, and does without the timing where there is none.
  void run(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
           void* workspace);

  /// The same for all shapes, GPUs and ranks: what NVIDIA recommends for Hopper and Blackwell, and
  /// the bytes to the next multiple of 256, where the library wants it to begin.
  static constexpr std::size_t library_workspace_bytes = std::size_t{32} << 20;
  static constexpr std::size_t workspace_alignment = 256;
  static constexpr std::size_t workspace_bytes = library_workspace_bytes + workspace_alignment - 1;

 private:
  template <class T>
  using Handle = std::unique_ptr<T, cublasStatus_t (*)(T*)>;
  using Context = Handle<std::remove_pointer_t<cublasLtHandle_t>>;
  using Description = Handle<cublasLtMatmulDescOpaque_t>;
  using Layout = Handle<cublasLtMatrixLayoutOpaque_t>;
  using Preference = Handle<cublasLtMatmulPreferenceOpaque_t>;

  struct Arguments {
    const void* a;
    const void* b;
    const void* bias;
    void* c;
    void* workspace;
  };
  /// A cached algorithm serves operands as well aligned as those that it was chosen for.
  struct Key {
    MatmulShape shape;
    int device = 0;
    std::uint64_t alignments = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  /// A shape as the library knows it. Its matrices are ours transposed: what we store by rows it
  /// reads by columns, so Cᵀ = op(B)ᵀ·op(A)ᵀ, and `left` is B.
  struct Product {
    cublasLtHandle_t context = nullptr;
    Description description{nullptr, nullptr};
    Layout left{nullptr, nullptr}, right{nullptr, nullptr}, result{nullptr, nullptr};
    bool fuses_bias = false;
    bool is_settled = false;
    std::vector<cublasLtMatmulAlgo_t> candidates;  ///< best first; none: our own kernel
  };

  Product& product_of(const MatmulShape& shape, const Arguments& arguments);
  [[nodiscard]] Product build(const MatmulShape& shape, const Arguments& arguments,
                              bool fuses_bias);
  cublasLtHandle_t context_of(int device);
  void settle(const MatmulShape& shape, Product& product, const Arguments& arguments);
  [[nodiscard]] bool execute(const MatmulShape& shape, const Product& product,
                             const cublasLtMatmulAlgo_t& algorithm, const Arguments& arguments,
                             void* result);
  [[nodiscard]] cublasStatus_t set_bias(const Product& product, const void* bias) const;

  const BlasLibrary* library_;
  Gpu& gpu_;
  OwnKernels own_;
  Choice choice_;
  std::mutex mutex_;
  std::map<int, Context> contexts_;  ///< by device
  std::unordered_map<Key, Product, KeyHash> products_;
};

}  // namespace dstune::kernels::cuda
