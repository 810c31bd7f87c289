#pragma once
/// Attention by cuDNN, where it has a plan for the shape: 16-bit types, heads of a multiple of 8
/// elements up to 256 (backward on most GPUs up to 128), causal or not, a window where causal.
/// A few plans are built and timed at a shape's first use, and the fastest is kept; a call
/// allocates no memory of the device. Where the library fails for want of memory CudaOutOfMemory is
/// thrown, and the next use begins anew.
///
/// Results are the same in every run: backward is the library's deterministic form, which keeps the
/// gradient of the scores of as many heads at a time as fit into most_score_bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "dstune/kernels/kernels.hpp"
#include "libraries/attention_graph.hpp"
#include "libraries/choice.hpp"
#include "libraries/gpu.hpp"

namespace dstune::kernels::cuda {

class LibraryAttention {
 public:
  /// What serves where the library does not.
  struct OwnKernels {
    decltype(Table::attention_forward) forward;
    decltype(Table::attention_backward) backward;
    decltype(Table::attention_workspace_bytes) workspace_bytes;
  };

  static constexpr std::int64_t usual_score_bytes = std::int64_t{256} << 20;

  /// `library` may be null. Every rank gives the same most_score_bytes.
  LibraryAttention(const DnnLibrary* library, Gpu& gpu, OwnKernels own, Choice choice,
                   std::int64_t most_score_bytes = usual_score_bytes);

  /// The functions of the table.
  void forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
               void* workspace);
  void backward(const AttentionShape& shape, void* d_qkv, const void* d_out, const void* qkv,
                const void* out, const float* log_sum_exp, void* workspace);
  /// Of the shape alone, the same on every GPU and rank, with the library or without: a plan that
  /// needs more is not used.
  [[nodiscard]] std::size_t workspace_bytes(const AttentionShape& shape) const;

 private:
  /// A pair each of a tensor or number, and where it is.
  using Addresses = std::vector<std::pair<std::int64_t, const void*>>;
  using Context =
      std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, cudnnStatus_t (*)(cudnnHandle_t)>;
  using Key = std::array<std::int64_t, 10>;
  enum class Direction { forward, backward };

  [[nodiscard]] AttentionPiece backward_piece(const AttentionShape& shape) const;
  [[nodiscard]] bool serves(const AttentionShape& shape, Direction direction) const;
  /// Best first; none: our own kernel.
  struct Plans {
    std::vector<Descriptor> candidates;
    bool is_settled = false;
  };
  Plans& plans_of(const AttentionPiece& piece, Direction direction);
  /// Whether one of the plans did all pieces; one that fails is never used again. execute(plan,
  /// number of the piece) gives whether it works.
  bool run(Plans& plans, std::int64_t pieces,
           const std::function<bool(const Descriptor&, std::int64_t)>& execute);
  cudnnHandle_t context_of(int device);
  [[nodiscard]] bool execute(const Descriptor& plan, const AttentionShape& shape,
                             Addresses addresses, void* workspace);

  const DnnLibrary* library_;
  Gpu& gpu_;
  OwnKernels own_;
  Choice choice_;
  std::int64_t most_score_bytes_;
  std::mutex mutex_;
  std::map<int, Context> contexts_;  ///< by device
  std::map<Key, Plans> plans_;
};

}  // namespace dstune::kernels::cuda
