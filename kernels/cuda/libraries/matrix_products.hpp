#pragma once
/// Matrix products by cuBLASLt, with a bias, GELU and a bias's gradient where its epilogues do them
/// faster than kernels of our own after it. The first use of a shape asks the library for its
/// candidates and, where there are several, times each of them with what it leaves to our kernels;
/// the fastest serves the shape from then on, in all experiments of the process; what an earlier
/// process chose, or another rank (KeptChoices), is taken without being timed. A product with a
/// dimension that the library's fast kernels do not take, as a vocabulary of 50257, is done as two
/// where that is faster. Later uses allocate nothing and wait for nothing. If the library fails for
/// want of memory, CudaOutOfMemory is thrown, and the next use begins anew.
///
/// Sums are fp32 ones, also over 16-bit operands and where a product is cut along k; fp32 operands
/// are multiplied as fp32 numbers, not as TF32. Results are the same in every run of one algorithm;
/// since the clock chooses it, two processes may differ in the last bits: Choice::first is for
/// those that must not, and takes the library's epilogues wherever it has them.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "dstune/kernels/kernels.hpp"
#include "libraries/candidates.hpp"
#include "libraries/kept_choices.hpp"
#include "libraries/libraries.hpp"

namespace dstune::kernels::cuda {

class MatrixProducts {
 public:
  /// Kernels for the work after a product that no epilogue does.
  struct OwnKernels {
    void (*add_bias)(const MatmulShape&, const void* bias, void* c);
    decltype(Table::activation_forward) activation_forward;
    decltype(Table::activation_backward) activation_backward;
    decltype(Table::bias_backward) bias_backward;
    decltype(Table::add) add;
  };

  /// `kept` may be null. Everything that is pointed to outlives it.
  MatrixProducts(const BlasLibrary* library, Gpu& gpu, OwnKernels own, Choice choice,
                 KeptChoices* kept = nullptr);

  /// matmul(), matmul_activation_forward(), matmul_activation_backward() and
  /// matmul_bias_backward() of the table. A shape's first use, unless its stream records a graph,
  /// runs the product several times and waits for it; where it adds to its results it takes memory
  /// of their size for so long, and does without the timing where there is none. std::runtime_error
  /// with the product's sizes where the library does not do it.
  void run(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
           void* workspace);
  void run_activation_forward(const MatmulShape& shape, Activation activation, const void* a,
                              const void* b, const void* bias, void* c, void* activated,
                              void* workspace);
  void run_activation_backward(const MatmulShape& shape, Activation activation, const void* a,
                               const void* b, const void* x, void* c, void* workspace);
  void run_bias_backward(const MatmulShape& shape, const void* a, const void* b, void* c,
                         void* d_bias, void* workspace);

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

  /// The work that is asked for beside the product and its bias.
  enum class Then : std::uint8_t { nothing, activation, slope, bias_gradient };
  struct Operation {
    MatmulShape shape;
    Then then = Then::nothing;
    Activation activation = Activation::gelu_tanh;
    bool operator==(const Operation&) const = default;
  };
  /// The work after the product that the library does itself; our kernels do the rest.
  struct Epilogue {
    bool adds_bias = false;
    bool activates = false;
    bool sums = false;  ///< the bias's gradient
  };
  struct Call {
    Operation operation;
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    void* workspace = nullptr;
    const void* added_to = nullptr;  ///< where that is not C
    const void* bias = nullptr;
    void* activated = nullptr;
    const void* x = nullptr;  ///< where the activation's slope is taken
    void* d_bias = nullptr;

    /// The place of the library's result: not C if it activates that.
    [[nodiscard]] void* result(const Epilogue& epilogue) const {
      return epilogue.activates && operation.then == Then::activation ? activated : c;
    }
    /// The activation's.
    [[nodiscard]] const void* input() const { return operation.then == Then::slope ? x : c; }
  };
  /// A cached algorithm serves operands as well aligned as those that it was chosen for.
  struct Key {
    Operation operation;
    int device = 0;
    std::uint64_t alignments = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  /// A product as the library knows it, with an epilogue, and one of its algorithms for that.
  struct Candidate {
    Epilogue epilogue;
    cublasLtMatmulDesc_t description;
    cublasLtMatmulAlgo_t algorithm;
    std::size_t place;  ///< in the order in which they were offered
  };
  /// An operation as the library knows it. Its matrices are ours transposed: what we store by rows
  /// it reads by columns, so Cᵀ = op(B)ᵀ·op(A)ᵀ, and `left` is B. A column of ours, which has one
  /// bias, is a row of its result, as the library wants it.
  struct Product {
    cublasLtHandle_t context = nullptr;
    Layout left{nullptr, nullptr}, right{nullptr, nullptr}, result{nullptr, nullptr};
    std::vector<Description> descriptions;  ///< one an epilogue
    bool is_settled = false;
    bool is_kept = false;                                      ///< what serves was not timed here
    std::size_t offered = 0;                                   ///< candidates
    double seconds = std::numeric_limits<double>::infinity();  ///< of the best, where it was timed
    std::vector<Candidate> candidates;                         ///< best first
    cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;      ///< the last
  };

  /// A product as two, of which the larger has dimensions that the library's fast kernels take.
  struct Parts {
    Call most, rest;
  };
  /// Below it a product is too small for two launches.
  static constexpr std::int64_t min_extent_in_parts = 512;

  void serve(const Call& call);
  void serve_whole(const Call& call);
  [[nodiscard]] std::optional<Parts> parts_of(const Call& call) const;
  /// Decides by their times, which are taken at the first use that records no graph.
  [[nodiscard]] bool is_faster_in_parts(const Call& call, const Parts& parts);
  [[nodiscard]] double seconds_of(const Call& call);
  [[nodiscard]] Key key_of(const Call& call) const;
  Product& product_of(const Call& call);
  [[nodiscard]] Product build(const Call& call);
  void add_candidates(const Call& call, const Epilogue& epilogue, Product& product);
  [[nodiscard]] static cublasLtEpilogue_t its_epilogue(Then then, const Epilogue& epilogue);
  cublasLtHandle_t context_of(int device);
  /// A kept choice decides, else time.
  void settle(const Call& call, Product& product);
  /// True for one of the candidates.
  [[nodiscard]] bool take_kept(const Call& call, Product& product) const;
  /// `is_time_asked`: also where there is nothing to choose.
  void time(const Call& call, Product& product, bool is_time_asked);
  /// Products that others have chosen otherwise since are settled anew.
  void hear_of_others();
  /// The words that a choice is kept for.
  [[nodiscard]] std::string words_of(const Key& key) const;
  [[nodiscard]] std::string words_of_parts(const Key& key) const {
    return words_of(key) + " parts";
  }
  /// Executes it with what comes after it; returns whether the library did its part.
  [[nodiscard]] bool execute(const Call& call, Product& product, const Candidate& candidate);
  /// The place where the library stores a bias's gradient that will be added to something: behind
  /// its workspace, which is so much smaller then.
  [[nodiscard]] static void* sums_of(const Call& call);
  [[nodiscard]] static std::size_t library_bytes(const Call& call, const Epilogue& epilogue);
  [[nodiscard]] cublasStatus_t set_pointers(const Call& call, const Epilogue& epilogue,
                                            cublasLtMatmulDesc_t description) const;
  /// Does in C what the epilogue has not done.
  void finish(const Call& call, const Epilogue& done) const;
  /// The bias's gradient by our kernels.
  void add_up_columns(const Call& call, bool accumulate) const;

  const BlasLibrary* library_;
  Gpu& gpu_;
  OwnKernels own_;
  Choice choice_;
  KeptChoices* kept_;
  std::uint64_t revision_ = 0;  ///< of the kept ones
  std::mutex mutex_;
  std::map<int, Context> contexts_;  ///< by device
  std::unordered_map<Key, Product, KeyHash> products_;
  std::unordered_map<Key, bool, KeyHash> in_parts_;
};

}  // namespace dstune::kernels::cuda
