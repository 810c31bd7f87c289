#include "program/emitter.hpp"

#include <algorithm>

#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "dstune/plan/sent_bytes.hpp"

namespace dstune::plan {
namespace {

/// More than a layer of a micro-step takes, recompute, gathering and buckets included.
constexpr std::size_t steps_a_layer = 192;
constexpr std::size_t tensors_a_layer = 64;

Overhead call_of(WorkKind kind, bool is_ahead) {
  switch (kind) {
    case WorkKind::all_reduce:
      return Overhead::all_reduce_call;
    case WorkKind::reduce:
      return Overhead::reduce_call;
    case WorkKind::reduce_scatter:
      return Overhead::reduce_scatter_call;
    case WorkKind::all_gather:
      return is_ahead ? Overhead::all_gather_ahead : Overhead::all_gather_call;
    case WorkKind::all_to_all:
      return Overhead::all_to_all_call;
    default:
      throw LogicError("no collective call");
  }
}

bool same_shape(const op::Matmul& left, const op::Matmul& right) {
  return left.m == right.m && left.n == right.n && left.k == right.k &&
         left.transpose_a == right.transpose_a && left.transpose_b == right.transpose_b &&
         left.accumulate == right.accumulate && left.stride_a == right.stride_a &&
         left.stride_c == right.stride_c &&
         static_cast<bool>(left.bias) == static_cast<bool>(right.bias);
}

}  // namespace

Emitter::Emitter(StepPlan& plan, const WorkspaceSizes& workspaces, Contents contents)
    : plan_(plan),
      workspaces_(workspaces),
      is_placed_(contents != Contents::cycle),
      has_steps_(contents != Contents::figures),
      type_(element_type(plan.config.precision)),
      attention_bytes_(is_placed_
                           ? workspaces.attention(plan.config.micro_batch,
                                                  plan.config.sequence_length, plan.model, type_)
                           : 0) {
  for (std::vector<Segment>* segments : {&plan.tracing, &plan.cycle}) {
    for (Segment& segment : *segments) {
      segment.steps.clear();
      spare_.push_back(std::move(segment.steps));
    }
    segments->clear();
  }
  plan.tensors.clear();
  plan.reshard_pieces.clear();
  plan.initialize.clear();
  plan.memory = plan.host_memory = plan.disk = {};
  plan.num_events = 0;
  if (!uses_disk(plan.config)) return;
  for (const Memory memory : {Memory::host, Memory::disk})
    account_of(memory).alignment = disk_alignment_bytes;
}

MemoryPlan& Emitter::figures_of(Memory memory) {
  switch (memory) {
    case Memory::device:
      return plan_.memory;
    case Memory::host:
      return plan_.host_memory;
    case Memory::disk:
      return plan_.disk;
  }
  throw LogicError("unknown memory");
}

void Emitter::account(const PlannedTensor& tensor) {
  MemoryAccount& account = account_of(tensor.memory);
  MemoryPlan& memory = figures_of(tensor.memory);
  account.live[static_cast<std::size_t>(tensor.category)] += tensor.padded_bytes;
  account.live_bytes += tensor.padded_bytes;
  if (account.live_bytes > memory.peak_live_bytes) {
    memory.peak_live_bytes = account.live_bytes;
    account.is_at_peak = true;
  }
}

void Emitter::write_peak(Memory memory) {
  MemoryAccount& account = account_of(memory);
  if (account.is_at_peak) figures_of(memory).categories_at_peak = account.live;
  account.is_at_peak = false;
}

TensorId Emitter::place(const char* name, int layer, Category category, DType type,
                        std::int64_t elements, Memory memory) {
  require(elements > 0, "a tensor holds something");
  // Half of the range is left for padding.
  const std::int64_t bytes = checked_product(name, elements, size_bytes(type), 2) / 2;
  const std::int64_t padded = account_of(memory).padded(bytes);
  if (!is_placed_) {
    plan_.tensors.push_back({name, layer, category, type, elements, padded, -1, false, memory});
    return static_cast<TensorId>(plan_.tensors.size()) - 1;
  }
  return add(name, layer, category, type, elements, memory, padded,
             account_of(memory).arena.acquire(padded));
}

TensorId Emitter::add(const char* name, int layer, Category category, DType type,
                      std::int64_t elements, Memory memory, std::int64_t padded_bytes,
                      ArenaSimulation::Taken taken) {
  plan_.tensors.push_back(
      {name, layer, category, type, elements, padded_bytes, taken.offset, false, memory});
  blocks_.push_back(taken.block);
  account(plan_.tensors.back());
  return static_cast<TensorId>(plan_.tensors.size()) - 1;
}

TensorId Emitter::persistent(const char* name, Category category, DType type, std::int64_t elements,
                             Memory memory) {
  const TensorId tensor = place(name, -1, category, type, elements, memory);
  plan_.tensors.back().persistent = true;
  account_of(memory).persistent_bytes = account_of(memory).arena.top_bytes();
  return tensor;
}

void Emitter::write_initialize() {
  steps_ = &plan_.initialize;
}

void Emitter::begin_segment_of(std::vector<Segment>& segments, Segment::Kind kind,
                               std::int64_t repeat) {
  segments.push_back({kind, repeat, {}, {}, {}});
  counted_.clear();
  steps_ = &segments.back().steps;
  overheads_ = &segments.back().overheads;
  if (!spare_.empty()) {
    *steps_ = std::move(spare_.back());
    spare_.pop_back();
  }
  if (is_placed_ && kind != Segment::Kind::update && kind != Segment::Kind::guarded_update) {
    // Growing by copies would take most of the time of building a plan.
    const std::int64_t layers = plan_.model.num_layers;
    if (has_steps_) steps_->reserve(layers * steps_a_layer);
    plan_.tensors.reserve(plan_.tensors.size() + layers * tensors_a_layer);
  }
  events_ = 0;
}

void Emitter::end_segment() {
  for (const MemoryAccount& account : accounts_)
    require(account.arena.top_bytes() == account.persistent_bytes,
            "a segment releases what it acquires");
  plan_.num_events = std::max(plan_.num_events, events_);
}

void Emitter::repeat(const Instant& first_alike, const Instant& begin, std::int64_t times) {
  std::vector<Segment>& cycle = plan_.cycle;
  cycle.back().repeated.push_back({begin.step, steps_->size(), times, first_alike.event});
  // One after the other, as the unfolded layers: sums are then rounded alike.
  const std::size_t end = counted_.size();
  for (std::int64_t time = 1; time < times; ++time)
    for (std::size_t index = begin.counted; index < end; ++index)
      of(*overheads_, counted_[index].first) += counted_[index].second;
}

void Emitter::finish() {
  for (const Memory memory : {Memory::device, Memory::host, Memory::disk}) {
    write_peak(memory);
    figures_of(memory).arena_bytes = account_of(memory).arena.highest_bytes();
  }
}

TensorId Emitter::acquire(const char* name, int layer, Category category, DType type,
                          std::int64_t elements, Memory memory) {
  const TensorId tensor = place(name, layer, category, type, elements, memory);
  if (is_placed_) emit(op::Acquire{tensor});
  return tensor;
}

void Emitter::release(TensorId id) {
  if (id == no_tensor || !is_placed_) return;
  const PlannedTensor& tensor = plan_.tensors[id];
  account_of(tensor.memory).arena.release(blocks_[id]);
  remove_from_account(tensor);
  emit(op::Release{id});
}

void Emitter::remove_from_account(const PlannedTensor& tensor) {
  write_peak(tensor.memory);
  MemoryAccount& account = account_of(tensor.memory);
  account.live[static_cast<std::size_t>(tensor.category)] -= tensor.padded_bytes;
  account.live_bytes -= tensor.padded_bytes;
}

TensorId Emitter::borrow_workspace(std::int64_t bytes) {
  if (bytes == 0) return no_tensor;
  const std::int64_t elements = (bytes + 3) / 4;
  MemoryAccount& account = account_of(Memory::device);
  const std::int64_t padded = account.padded(elements * size_bytes(DType::f32));
  // Half of a plan's tensors are scratch: they leave the arena as it is.
  const TensorId scratch = add("workspace", -1, Category::workspace, DType::f32, elements,
                               Memory::device, padded, {account.arena.borrow(padded), -1});
  emit(op::Acquire{scratch});
  return scratch;
}

void Emitter::return_workspace(TensorId scratch) {
  if (scratch == no_tensor) return;
  remove_from_account(plan_.tensors[scratch]);
  emit(op::Release{scratch});
}

std::int64_t Emitter::matmul_bytes(const op::Matmul& operation) {
  for (const auto& [shape, bytes] : matmuls_) {
    if (same_shape(shape, operation)) return bytes;
  }
  return matmuls_.emplace_back(operation, workspaces_.matmul(operation, type_, type_)).second;
}

std::int64_t Emitter::norm_bytes(std::int64_t width) {
  for (const auto& [known, bytes] : norms_) {
    if (known == width) return bytes;
  }
  return norms_.emplace_back(width, workspaces_.norm(width)).second;
}

std::int64_t Emitter::workspace_bytes(const op::Matmul& operation) {
  const std::int64_t bytes = matmul_bytes(operation);
  return operation.d_bias ? std::max(bytes, norm_bytes(operation.m)) : bytes;
}

void Emitter::count_call(WorkKind kind, const op::Collective& call) {
  count(call_of(kind, is_ahead_));
  const double bytes = static_cast<double>(call.elements) *
                       static_cast<double>(size_bytes(plan_.tensors[call.data.tensor].dtype));
  const double sent = sent_bytes(kind, call.among.size(plan_.group_size), bytes);
  count(Overhead::small_call_byte, std::min(sent, most_of_small_call));
  count(Overhead::communicated_byte, sent);
}

int Emitter::record(Stream stream) {
  const int event = events_++;
  emit(op::Record{event}, stream);
  return event;
}

}  // namespace dstune::plan
