#pragma once
/// Attention by cuDNN, where it has a plan for the shape: 16-bit types, heads of a multiple of 8
/// elements up to 256 (backward on most GPUs up to 128), causal or not, a window where causal. A
/// few plans are built and timed at a shape's first use, and the fastest is kept; what an earlier
/// process chose, or another rank (KeptChoices), is taken without being timed. A call allocates no
/// memory of the device. If the library fails for want of memory, CudaOutOfMemory is thrown, and
/// the next use begins anew.
///
/// Backward has two forms (BackwardForm). One gives the same bits in every run and keeps the
/// gradient of the scores; the other adds up the gradient of the queries as its blocks come, and is
/// a candidate where Choice::fastest allows it. Either does as many heads at a time as keep what
/// they need in max_scratch_bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dstune/kernels/kernels.hpp"
#include "libraries/attention_graph.hpp"
#include "libraries/candidates.hpp"
#include "libraries/kept_choices.hpp"

namespace dstune::kernels::cuda {

class LibraryAttention {
 public:
  static constexpr std::int64_t default_scratch_bytes = std::int64_t{256} << 20;

  /// Every rank gives the same max_scratch_bytes. `kept` may be null. Everything that is pointed to
  /// outlives it.
  LibraryAttention(const DnnLibrary* library, Gpu& gpu, Choice choice,
                   std::int64_t max_scratch_bytes = default_scratch_bytes,
                   KeptChoices* kept = nullptr);

  /// The functions of the table, in 16 bits. std::runtime_error with the shape where the library
  /// does not do it.
  void forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
               void* workspace);
  void backward(const AttentionShape& shape, void* d_qkv, const void* d_out, const void* qkv,
                const void* out, const float* log_sum_exp, void* workspace);
  /// The workspace follows from the shape alone, the same on every GPU and rank: a plan that needs
  /// more is not used.
  [[nodiscard]] static std::size_t workspace_bytes(
      const AttentionShape& shape, std::int64_t max_scratch_bytes = default_scratch_bytes);

 private:
  /// A pair each of a tensor or number, and where it is.
  using Addresses = std::vector<std::pair<std::int64_t, const void*>>;
  using Context =
      std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, cudnnStatus_t (*)(cudnnHandle_t)>;
  using Key = std::array<std::int64_t, 10>;
  enum class Direction { forward, backward };

  /// A plan of the library, which does the shape piece by piece.
  struct Candidate {
    Descriptor plan;
    AttentionPiece piece;
    std::optional<BackwardForm> form;  ///< of backward
    std::size_t place = 0;             ///< in the order in which they were offered
  };
  /// Best first.
  struct Candidates {
    std::vector<Candidate> all;
    bool is_settled = false;
    bool is_kept = false;                                ///< what serves was not timed here
    std::size_t offered = 0;                             ///< plans
    std::string words;                                   ///< what a choice is kept for
    cudnnStatus_t refusal = CUDNN_STATUS_NOT_SUPPORTED;  ///< the last
  };

  Candidates& candidates_of(const AttentionShape& shape, Direction direction);
  /// Forward without a form.
  void add_plans(Candidates& to, const AttentionPiece& piece, std::optional<BackwardForm> form,
                 std::int64_t max_bytes, std::size_t most);
  /// A kept choice decides, else time.
  void settle(Candidates& candidates, const std::function<bool(const Candidate&)>& execute);
  void time(Candidates& candidates, const std::function<bool(const Candidate&)>& execute);
  /// Serves with the first of the candidates that does it; one that fails is never used again.
  /// execute(candidate) does all pieces and gives whether it works.
  void serve(const AttentionShape& shape, Direction direction, bool is_aligned,
             const std::function<bool(const Candidate&)>& execute);
  cudnnHandle_t context_of(int device);
  [[nodiscard]] bool execute(const Descriptor& plan, const AttentionShape& shape,
                             Addresses addresses, void* workspace);

  const DnnLibrary* library_;
  Gpu& gpu_;
  Choice choice_;
  std::int64_t max_scratch_bytes_;
  KeptChoices* kept_;
  std::uint64_t revision_ = 0;  ///< of the kept ones
  std::mutex mutex_;
  std::map<int, Context> contexts_;  ///< by device
  std::map<Key, Candidates> candidates_;
  cudnnStatus_t failure_ = CUDNN_STATUS_SUCCESS;  ///< of the last execution that failed
};

}  // namespace dstune::kernels::cuda
