#include "library_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace dstune::kernels::cuda {
namespace {

constexpr std::int64_t largest_head = 256;
/// Before it, backward is known to be wrong (cuDNN's release notes of 9.10.2).
constexpr std::size_t oldest_version = 91002;
/// Up to this one, backward wants sequences in whole tiles, or lengths given one by one.
constexpr std::size_t last_of_whole_tiles = 91500;
constexpr std::int64_t score_tile = 128;
constexpr std::int64_t element_bytes = 2;

constexpr std::int64_t workspace_alignment = 256;
/// Making a plan takes some tenths of a second.
constexpr std::size_t max_candidates = 3;
/// The bytes that plans take beside matrices: 256 as seen.
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

/// The bytes that a head needs beside its matrices: its scores' gradient, or its queries' gradient
/// in fp32 and once more. The library's kernels for GPUs before the H100 take the latter.
std::int64_t scratch_bytes(const AttentionShape& shape, BackwardForm form) {
  const std::int64_t padded = round_up(shape.sequence, score_tile);
  if (form == BackwardForm::stored_scores) return padded * padded * element_bytes;
  return 2 * padded * shape.head_size * std::int64_t{sizeof(float)};
}

std::int64_t delta_bytes(const AttentionPiece& piece) {
  return round_up(
      piece.batches * piece.heads() * piece.whole.sequence * std::int64_t{sizeof(float)},
      workspace_alignment);
}

std::int64_t sum_bytes(const AttentionPiece& piece, BackwardForm form) {
  if (form == BackwardForm::stored_scores) return 0;
  return round_up(piece.batches * piece.heads() * piece.whole.sequence * piece.whole.head_size *
                      std::int64_t{sizeof(float)},
                  workspace_alignment);
}

/// The most that a plan of backward may need beside them; where query heads share a key head, that
/// is the gradients that each makes, too.
std::int64_t plan_bytes(const AttentionPiece& piece, BackwardForm form) {
  const std::int64_t heads = piece.batches * piece.heads();
  const bool shares = piece.heads() != piece.kv_heads;
  const std::int64_t of_each =
      shares ? 2 * round_up(piece.whole.sequence, score_tile) * piece.whole.head_size : 0;
  return heads * (scratch_bytes(piece.whole, form) + of_each * element_bytes) -
         sum_bytes(piece, form) + spare_bytes;
}

std::int64_t backward_bytes(const AttentionPiece& piece, BackwardForm form) {
  return delta_bytes(piece) + sum_bytes(piece, form) + plan_bytes(piece, form);
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

std::string words_for(const AttentionShape& shape, const char* direction, cudnnStatus_t status) {
  return "cuDNN does not do attention's " + std::string(direction) + " of " +
         std::to_string(shape.batch) + " x " + std::to_string(shape.sequence) + " tokens with " +
         std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_size) +
         " elements, " + std::to_string(shape.kv_heads) + " of keys (its status " +
         std::to_string(status) + ")";
}

/// Equal pieces, so that one plan does them all.
AttentionPiece backward_piece(const AttentionShape& shape, BackwardForm form,
                              std::int64_t max_scratch_bytes) {
  const std::int64_t heads = max_scratch_bytes / scratch_bytes(shape, form);
  if (heads >= shape.heads)
    return {shape, largest_divisor(shape.batch, heads / shape.heads), shape.kv_heads};
  return {shape, 1, largest_divisor(shape.kv_heads, heads * shape.kv_heads / shape.heads)};
}

/// `elements` of 16 bits further on.
const void* at(const void* data, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * element_bytes;
}

}  // namespace

LibraryAttention::LibraryAttention(const DnnLibrary* library, Gpu& gpu, Choice choice,
                                   std::int64_t max_scratch_bytes, KeptChoices* kept)
    : library_(library),
      gpu_(gpu),
      choice_(choice),
      max_scratch_bytes_(max_scratch_bytes),
      kept_(kept) {}

std::size_t LibraryAttention::workspace_bytes(const AttentionShape& given,
                                              std::int64_t max_scratch_bytes) {
  const AttentionShape shape = simplest(given);
  if (!may_serve(shape)) return 0;
  std::int64_t bytes = 0;
  for (const BackwardForm form : {BackwardForm::stored_scores, BackwardForm::added_up})
    bytes = std::max(bytes, backward_bytes(backward_piece(shape, form, max_scratch_bytes), form));
  return static_cast<std::size_t>(bytes + workspace_alignment);
}

cudnnHandle_t LibraryAttention::context_of(int device) {
  if (const auto found = contexts_.find(device); found != contexts_.end())
    return found->second.get();
  cudnnHandle_t context = nullptr;
  const cudnnStatus_t status = library_->create(&context);
  if (status != CUDNN_STATUS_SUCCESS) throw DnnRefusal{status};
  return contexts_.emplace(device, Context(context, library_->destroy)).first->second.get();
}

LibraryAttention::Candidates& LibraryAttention::candidates_of(const AttentionShape& s,
                                                              Direction direction) {
  const Key key{gpu_.device(), static_cast<int>(direction),
                s.batch,       s.sequence,
                s.heads,       s.kv_heads,
                s.head_size,   static_cast<int>(s.causal),
                s.window,      static_cast<int>(s.type)};
  if (const auto found = candidates_.find(key); found != candidates_.end()) return found->second;
  Candidates candidates;
  const std::size_t most = choice_ == Choice::first ? 1 : max_candidates;
  const auto add_backward = [&](BackwardForm form, std::size_t max_plans) {
    const AttentionPiece piece = backward_piece(s, form, max_scratch_bytes_);
    add_plans(candidates, piece, form, plan_bytes(piece, form), max_plans);
  };
  if (direction == Direction::forward) {
    const auto bytes =
        static_cast<std::int64_t>(workspace_bytes(s, max_scratch_bytes_)) - workspace_alignment;
    add_plans(candidates, {s, s.batch, s.kv_heads}, {}, bytes, most);
  } else if (choice_ == Choice::fastest) {
    add_backward(BackwardForm::added_up, most - 1);
    add_backward(BackwardForm::stored_scores, 1);
  } else {
    add_backward(BackwardForm::stored_scores, most);
  }
  candidates.offered = candidates.all.size();
  candidates.words = "cuDNN " + std::to_string(library_->get_version()) + ", " + gpu_.name() +
                     (choice_ == Choice::fastest ? ": attention" : ": reproducible attention");
  for (std::size_t part = 1; part < key.size(); ++part)
    candidates.words += " " + std::to_string(key[part]);
  return candidates_.emplace(key, std::move(candidates)).first->second;
}

void LibraryAttention::add_plans(Candidates& to, const AttentionPiece& piece,
                                 std::optional<BackwardForm> form, std::int64_t max_bytes,
                                 std::size_t most) try {
  const OperationGraph graph = form ? attention_backward_graph(*library_, piece, *form)
                                    : attention_forward_graph(*library_, piece);
  for (Descriptor& plan : graph.plans({context_of(gpu_.device())}, max_bytes, most))
    to.all.push_back({std::move(plan), piece, form, to.all.size()});
} catch (const DnnRefusal& refusal) {
  throw_if_out_of_memory(gpu_, refusal.status);
  to.refusal = refusal.status;  // the other form may serve
}

void LibraryAttention::settle(Candidates& candidates,
                              const std::function<bool(const Candidate&)>& execute) {
  const auto place = kept_ != nullptr && choice_ != Choice::first
                         ? kept_->find(candidates.words, candidates.offered)
                         : std::nullopt;
  const auto found =
      place ? std::ranges::find(candidates.all, *place, &Candidate::place) : candidates.all.end();
  candidates.is_kept = found != candidates.all.end();
  if (!candidates.is_kept) return time(candidates, execute);
  std::rotate(candidates.all.begin(), found, found + 1);
}

void LibraryAttention::time(Candidates& candidates,
                            const std::function<bool(const Candidate&)>& execute) {
  candidates.is_kept = false;
  if (candidates.all.size() < 2) return;
  // Inputs are only read, and outputs the same each time but for the order of sums.
  sort_by_time(gpu_, candidates.all, execute);
  if (kept_ != nullptr && !candidates.all.empty())
    kept_->keep(candidates.words, candidates.all.front().place, candidates.offered);
}

void LibraryAttention::serve(const AttentionShape& shape, Direction direction, bool is_aligned,
                             const std::function<bool(const Candidate&)>& execute) {
  if (shape.batch <= 0 || shape.sequence <= 0) return;
  const std::size_t version = library_->get_version();
  const bool takes_tiles = direction == Direction::forward || version > last_of_whole_tiles ||
                           shape.sequence % score_tile == 0;
  cudnnStatus_t refusal = CUDNN_STATUS_NOT_SUPPORTED;
  if (may_serve(shape) && version >= oldest_version && takes_tiles && is_aligned) {
    const std::lock_guard lock(mutex_);
    if (kept_ != nullptr && kept_->revision() != revision_) {
      revision_ = kept_->revision();
      for (auto& [key, known] : candidates_) known.is_settled = false;
    }
    Candidates& candidates = candidates_of(shape, direction);
    failure_ = CUDNN_STATUS_SUCCESS;
    if (!candidates.is_settled && !gpu_.is_recording()) {
      settle(candidates, execute);
      candidates.is_settled = true;
    }
    while (!candidates.all.empty()) {
      if (execute(candidates.all.front())) return;
      candidates.all.erase(candidates.all.begin());
      // The next best is not known.
      if (candidates.is_kept && !gpu_.is_recording()) time(candidates, execute);
    }
    if (failure_ != CUDNN_STATUS_SUCCESS) candidates.refusal = failure_;
    refusal = candidates.refusal;
  }
  throw std::runtime_error(
      words_for(shape, direction == Direction::forward ? "forward" : "backward", refusal));
}

bool LibraryAttention::execute(const Descriptor& plan, const AttentionShape& shape,
                               Addresses addresses, void* workspace) try {
  const float scale = shape.softmax_scale > 0.0F
                          ? shape.softmax_scale
                          : 1.0F / std::sqrt(static_cast<float>(shape.head_size));
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
  throw_if_out_of_memory(gpu_, refusal.status);
  failure_ = refusal.status;
  return false;
}

void LibraryAttention::forward(const AttentionShape& given, void* out, float* log_sum_exp,
                               const void* qkv, void* workspace) {
  const AttentionShape shape = simplest(given);
  const std::int64_t keys = shape.heads * shape.head_size;
  const std::int64_t values = keys + shape.kv_heads * shape.head_size;
  const auto execute_plan = [&](const Candidate& candidate) {
    return execute(candidate.plan, shape,
                   {{uid_q, qkv},
                    {uid_k, at(qkv, keys)},
                    {uid_v, at(qkv, values)},
                    {uid_out, out},
                    {uid_log_sum_exp, log_sum_exp}},
                   aligned(workspace));
  };
  serve(shape, Direction::forward, are_aligned(out, qkv, log_sum_exp), execute_plan);
}

void LibraryAttention::backward(const AttentionShape& given, void* d_qkv, const void* d_out,
                                const void* qkv, const void* out, const float* log_sum_exp,
                                void* workspace) {
  const AttentionShape shape = simplest(given);
  const std::int64_t row_width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  const float one = 1.0F;
  const auto execute_piece = [&](const Candidate& candidate, std::int64_t batch,
                                 std::int64_t kv_head) {
    const std::int64_t row = batch * shape.sequence;
    const std::int64_t head = kv_head * (shape.heads / shape.kv_heads);
    const std::int64_t q = row * row_width + head * shape.head_size;
    const std::int64_t k = row * row_width + (shape.heads + kv_head) * shape.head_size;
    const std::int64_t v = k + shape.kv_heads * shape.head_size;
    const std::int64_t o = (row * shape.heads + head) * shape.head_size;
    char* const delta = aligned(static_cast<char*>(workspace));
    char* const sums = delta + delta_bytes(candidate.piece);
    Addresses addresses{
        {uid_q, at(qkv, q)},
        {uid_k, at(qkv, k)},
        {uid_v, at(qkv, v)},
        {uid_out, at(out, o)},
        {uid_log_sum_exp, log_sum_exp + (batch * shape.heads + head) * shape.sequence},
        {uid_d_out, at(d_out, o)},
        {uid_d_q, at(d_qkv, q)},
        {uid_d_k, at(d_qkv, k)},
        {uid_d_v, at(d_qkv, v)},
        {uid_delta, delta},
        {uid_one, &one}};
    if (candidate.form == BackwardForm::added_up) addresses.emplace_back(uid_d_q_sums, sums);
    return execute(candidate.plan, shape, std::move(addresses),
                   sums + sum_bytes(candidate.piece, *candidate.form));
  };
  const auto execute_pieces = [&](const Candidate& candidate) {
    const AttentionPiece& piece = candidate.piece;
    for (std::int64_t batch = 0; batch < shape.batch; batch += piece.batches)
      for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += piece.kv_heads)
        if (!execute_piece(candidate, batch, kv_head)) return false;
    return true;
  };
  serve(shape, Direction::backward, are_aligned(d_qkv, d_out, qkv, out, log_sum_exp),
        execute_pieces);
}

}  // namespace dstune::kernels::cuda
