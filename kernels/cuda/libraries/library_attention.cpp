#include "library_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libraries/lack_of_memory.hpp"

namespace dstune::kernels::cuda {
namespace {

constexpr const char* name = "cuDNN";
constexpr std::int64_t largest_head = 256;
/// Before it, backward is known to be wrong (cuDNN's release notes of 9.10.2).
constexpr std::size_t oldest_version = 91002;
/// Up to this one, backward wants sequences in whole tiles, or lengths given one by one.
constexpr std::size_t last_of_whole_tiles = 91500;
constexpr std::int64_t score_tile = 128;
constexpr std::int64_t element_bytes = 2;

constexpr std::int64_t workspace_alignment = 256;
/// Making a plan takes some tenths of a second.
constexpr std::size_t most_candidates = 3;
/// What plans take beside matrices: 256 bytes as seen.
constexpr std::int64_t spare_bytes = 64 * 1024;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool may_serve(const AttentionShape& shape) {
  return shape.type != DType::f32 && shape.batch > 0 && shape.heads > 0 && shape.sequence > 1 &&
         shape.head_size > 0 && shape.head_size % 8 == 0 && shape.head_size <= largest_head &&
         (shape.window == 0 || shape.causal);
}

/// A window that hides nothing is none: so it changes no bit, and needs no plan of its own.
AttentionShape simplest(AttentionShape shape) {
  if (shape.window >= shape.sequence) shape.window = 0;
  return shape;
}

std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  std::int64_t divisor = std::clamp<std::int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

/// Bytes of the scores of a head.
std::int64_t score_bytes(const AttentionShape& shape) {
  const std::int64_t padded = round_up(shape.sequence, score_tile);
  return padded * padded * element_bytes;
}

AttentionPiece all_of(const AttentionShape& shape) {
  return {shape, shape.batch, shape.kv_heads};
}

std::int64_t delta_bytes(const AttentionPiece& piece) {
  return round_up(
      piece.batches * piece.heads() * piece.whole.sequence * std::int64_t{sizeof(float)},
      workspace_alignment);
}

/// The most that a plan may need: the scores' gradient, and where query heads share a key head the
/// gradients that each makes.
std::int64_t plan_bytes(const AttentionPiece& piece) {
  const std::int64_t heads = piece.batches * piece.heads();
  const bool shares = piece.heads() != piece.kv_heads;
  const std::int64_t of_each =
      shares ? 2 * round_up(piece.whole.sequence, score_tile) * piece.whole.head_size : 0;
  return heads * (score_bytes(piece.whole) + of_each * element_bytes) + spare_bytes;
}

template <class T>
T* aligned(T* workspace) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(
      round_up(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(workspace)),
               workspace_alignment)));
}

template <class... Pointers>
bool are_aligned(Pointers... pointers) {
  return (... && (reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0));
}

/// `elements` of 16 bits further on.
const void* at(const void* data, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * element_bytes;
}

}  // namespace

LibraryAttention::LibraryAttention(const DnnLibrary* library, Gpu& gpu, OwnKernels own,
                                   Choice choice, std::int64_t most_score_bytes)
    : library_(library),
      gpu_(gpu),
      own_(own),
      choice_(choice),
      most_score_bytes_(most_score_bytes) {}

/// Equal pieces, so that one plan does them all.
AttentionPiece LibraryAttention::backward_piece(const AttentionShape& shape) const {
  const std::int64_t heads = most_score_bytes_ / score_bytes(shape);
  if (heads >= shape.heads)
    return {shape, largest_divisor(shape.batch, heads / shape.heads), shape.kv_heads};
  return {shape, 1, largest_divisor(shape.kv_heads, heads * shape.kv_heads / shape.heads)};
}

std::size_t LibraryAttention::workspace_bytes(const AttentionShape& given) const {
  const AttentionShape shape = simplest(given);
  const std::size_t own = own_.workspace_bytes(shape);
  if (!may_serve(shape)) return own;
  const AttentionPiece piece = backward_piece(shape);
  const std::int64_t bytes = delta_bytes(piece) + plan_bytes(piece) + workspace_alignment;
  return std::max(own, static_cast<std::size_t>(bytes));
}

bool LibraryAttention::serves(const AttentionShape& shape, Direction direction) const {
  if (library_ == nullptr || !may_serve(shape)) return false;
  const std::size_t version = library_->get_version();
  return version >= oldest_version &&
         (direction == Direction::forward || version > last_of_whole_tiles ||
          shape.sequence % score_tile == 0);
}

cudnnHandle_t LibraryAttention::context_of(int device) {
  if (const auto found = contexts_.find(device); found != contexts_.end())
    return found->second.get();
  cudnnHandle_t context = nullptr;
  const cudnnStatus_t status = library_->create(&context);
  if (status != CUDNN_STATUS_SUCCESS) throw DnnRefusal{status};
  return contexts_.emplace(device, Context(context, library_->destroy)).first->second.get();
}

LibraryAttention::Plans& LibraryAttention::plans_of(const AttentionPiece& piece,
                                                    Direction direction) {
  const AttentionShape& s = piece.whole;
  const int device = gpu_.device();
  const Key key{device,      static_cast<int>(direction),
                s.batch,     s.sequence,
                s.heads,     s.kv_heads,
                s.head_size, static_cast<int>(s.causal),
                s.window,    static_cast<int>(s.type)};
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  Plans plans;
  try {
    const OperationGraph graph = direction == Direction::forward
                                     ? attention_forward_graph(*library_, piece)
                                     : attention_backward_graph(*library_, piece);
    plans.candidates = graph.plans({.handle = context_of(device)}, plan_bytes(piece),
                                   choice_ == Choice::first ? 1 : most_candidates);
  } catch (const DnnRefusal& refusal) {
    throw_where_memory_lacks(gpu_, said_by(refusal.status), name);
    // Our own kernel serves.
  }
  return plans_.emplace(key, std::move(plans)).first->second;
}

bool LibraryAttention::run(Plans& plans, std::int64_t pieces,
                           const std::function<bool(const Descriptor&, std::int64_t)>& execute) {
  if (!plans.is_settled && !gpu_.is_recording()) {
    // Inputs are only read, and outputs the same each time; pieces are alike.
    if (plans.candidates.size() > 1) {
      sort_by_time(gpu_, plans.candidates,
                   [&](const Descriptor& plan) { return execute(plan, 0); });
    }
    plans.is_settled = true;
  }
  while (!plans.candidates.empty()) {
    std::int64_t piece = 0;
    while (piece < pieces && execute(plans.candidates.front(), piece)) ++piece;
    if (piece == pieces) return true;
    plans.candidates.erase(plans.candidates.begin());
  }
  return false;
}

bool LibraryAttention::execute(const Descriptor& plan, const AttentionShape& shape,
                               Addresses addresses, void* workspace) try {
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_size));
  const float masked = -std::numeric_limits<float>::infinity();
  const auto window = static_cast<float>(shape.window);
  addresses.emplace_back(uid_scale, &scale);
  if (shape.causal) addresses.emplace_back(uid_masked, &masked);
  if (shape.window > 0) addresses.emplace_back(uid_window, &window);
  std::vector<std::int64_t> uids;
  std::vector<const void*> pointers;
  for (const auto& [uid, address] : addresses) {
    uids.push_back(uid);
    pointers.push_back(address);
  }
  const auto count = static_cast<std::int64_t>(uids.size());
  Descriptor arguments(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  arguments.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data());
  arguments.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  arguments.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  arguments.finalize();
  const cudnnHandle_t context = context_of(gpu_.device());
  cudnnStatus_t status = library_->set_stream(context, gpu_.stream());
  if (status == CUDNN_STATUS_SUCCESS)
    status = library_->execute(context, plan.get(), arguments.get());
  if (status == CUDNN_STATUS_SUCCESS) return true;
  throw DnnRefusal{status};
} catch (const DnnRefusal& refusal) {
  throw_where_memory_lacks(gpu_, said_by(refusal.status), name);
  return false;
}

void LibraryAttention::forward(const AttentionShape& given, void* out, float* log_sum_exp,
                               const void* qkv, void* workspace) {
  const AttentionShape shape = simplest(given);
  if (serves(shape, Direction::forward) && are_aligned(out, qkv)) {
    const std::lock_guard lock(mutex_);
    Plans& plans = plans_of(all_of(shape), Direction::forward);
    const std::int64_t keys = shape.heads * shape.head_size;
    const std::int64_t values = keys + shape.kv_heads * shape.head_size;
    const bool works = run(plans, 1, [&](const Descriptor& plan, std::int64_t) {
      return execute(plan, shape,
                     {{uid_q, qkv},
                      {uid_k, at(qkv, keys)},
                      {uid_v, at(qkv, values)},
                      {uid_out, out},
                      {uid_log_sum_exp, log_sum_exp}},
                     aligned(workspace));
    });
    if (works) return;
  }
  own_.forward(shape, out, log_sum_exp, qkv, workspace);
}

void LibraryAttention::backward(const AttentionShape& given, void* d_qkv, const void* d_out,
                                const void* qkv, const void* out, const float* log_sum_exp,
                                void* workspace) {
  const AttentionShape shape = simplest(given);
  if (serves(shape, Direction::backward) && are_aligned(d_qkv, d_out, qkv, out)) {
    const std::lock_guard lock(mutex_);
    const AttentionPiece piece = backward_piece(shape);
    Plans& plans = plans_of(piece, Direction::backward);
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t row_width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    void* const delta = aligned(workspace);
    void* const scratch = static_cast<char*>(delta) + delta_bytes(piece);
    const float one = 1.0F;
    const std::int64_t pieces_of_batch = shape.kv_heads / piece.kv_heads;
    const std::int64_t pieces = shape.batch / piece.batches * pieces_of_batch;
    const bool works = run(plans, pieces, [&](const Descriptor& plan, std::int64_t number) {
      const std::int64_t batch = number / pieces_of_batch * piece.batches;
      const std::int64_t kv_head = number % pieces_of_batch * piece.kv_heads;
      const std::int64_t row = batch * shape.sequence;
      const std::int64_t head = kv_head * group;
      const std::int64_t q = row * row_width + head * shape.head_size;
      const std::int64_t k = row * row_width + (shape.heads + kv_head) * shape.head_size;
      const std::int64_t v = k + shape.kv_heads * shape.head_size;
      const std::int64_t o = (row * shape.heads + head) * shape.head_size;
      return execute(
          plan, shape,
          {{uid_q, at(qkv, q)},
           {uid_k, at(qkv, k)},
           {uid_v, at(qkv, v)},
           {uid_out, at(out, o)},
           {uid_log_sum_exp, log_sum_exp + (batch * shape.heads + head) * shape.sequence},
           {uid_d_out, at(d_out, o)},
           {uid_d_q, at(d_qkv, q)},
           {uid_d_k, at(d_qkv, k)},
           {uid_d_v, at(d_qkv, v)},
           {uid_delta, delta},
           {uid_one, &one}},
          scratch);
    });
    if (works) return;
  }
  own_.backward(shape, d_qkv, d_out, qkv, out, log_sum_exp, workspace);
}

}  // namespace dstune::kernels::cuda
