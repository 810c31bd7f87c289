#include "replay.hpp"

#include <algorithm>

#include "plan_fixtures.hpp"
#include "zero/disk.hpp"

namespace dstune::test {

void Intervals::add(std::int64_t begin, std::int64_t end) {
  auto part = parts_.upper_bound(begin);
  if (part != parts_.begin() && std::prev(part)->second >= begin) --part;
  while (part != parts_.end() && part->first <= end) {
    begin = std::min(begin, part->first);
    end = std::max(end, part->second);
    part = parts_.erase(part);
  }
  parts_[begin] = end;
}

void Intervals::remove(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  add(begin, end);  // so that one part holds it all
  const auto part = std::prev(parts_.upper_bound(begin));
  const auto [first, last] = *part;
  parts_.erase(part);
  if (first < begin) parts_[first] = begin;
  if (end < last) parts_[end] = last;
}

bool Intervals::covers(std::int64_t begin, std::int64_t end) const {
  const auto part = parts_.upper_bound(begin);
  return begin >= end || (part != parts_.begin() && std::prev(part)->second >= end);
}

Replay::Replay(const StepPlan& plan, bool finishes) : plan_(plan), states_(plan.tensors.size()) {
  for (std::size_t index = 0; index < plan.tensors.size(); ++index) {
    if (plan.tensors[index].persistent) acquire(static_cast<TensorId>(index));
  }
  run(plan.initialize, "initialize");
  if (finishes) finish();
  for (int cycle = 0; cycle < 3; ++cycle) {
    forget_gradients();
    std::size_t replaced = 0;
    for (const Segment& segment : plan.cycle) {
      // A step that is skipped, and one after it.
      if (segment.kind == Segment::Kind::guarded_update && cycle == 1) continue;
      const std::int64_t rounds = std::min<std::int64_t>(segment.repeat, 3);
      for (std::int64_t round = 0; round < rounds; ++round) {
        if (cycle == 0 && replaced < plan.tracing.size()) {
          run(plan.tracing[replaced++].steps, "tracing segment");
        } else {
          run(segment.steps, "segment " + std::to_string(static_cast<int>(segment.kind)));
        }
      }
    }
    if (finishes) finish();
  }
}

void Replay::finish() {
  Clock all{};
  for (std::size_t stream = 0; stream < num_streams; ++stream)
    all[stream] = clocks_[stream][stream];
  clocks_.fill(all);
}

void Replay::forget_gradients() {
  // Nothing of one optimizer step's gradients may reach the next, but for the zeros of padding.
  const std::int64_t total = parameter_count(plan_.model);
  for (std::size_t index = 0; index < plan_.tensors.size(); ++index) {
    const PlannedTensor& tensor = plan_.tensors[index];
    if (!tensor.persistent || tensor.category != Category::gradients) continue;
    Intervals& written = states_[index].written;
    std::int64_t end = tensor.elements;
    const bool is_sharded = plan_.config.zero_stage == 3 && plan_.group_size > 1;
    const std::string_view name = tensor.name;
    if (is_sharded && (name == "own gradients" || name == "held gradients")) {
      forget_shards(tensor, written);
      continue;
    }
    if (name == "own gradients") {
      forget_own_part(end, written);
      continue;
    }
    if (name == "fp32 gradients") end = total;
    written.remove(0, end);
  }
}

void Replay::forget_own_part(std::int64_t own, Intervals& written) const {
  const ParameterTable table(plan_.model);
  const plan::Layout layout(table, plan_.config.zero_stage,
                            plan::partition_of(plan_.config, plan_.group_size, plan_.group_rank),
                            plan::offloaded_of(plan_.config), plan::order_of(plan_.config));
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const std::int64_t begin = layout.offset(index) - own * plan_.group_rank;
    const std::int64_t end = begin + layout.parameter(index).elements();
    written.remove(std::clamp<std::int64_t>(begin, 0, own), std::clamp<std::int64_t>(end, 0, own));
  }
}

void Replay::forget_shards(const PlannedTensor& tensor, Intervals& written) const {
  const ParameterTable table(plan_.model);
  const plan::Layout layout(
      table, 3, plan::partition_of(plan_.config, plan_.group_size, plan_.group_rank),
      {is_optimizer_offloaded(plan_.config), are_parameters_offloaded(plan_.config)});
  const auto groups = plan::cut_into_sub_groups(layout, plan_.config);
  const plan::SwappedGradients swapped(layout, plan_.config, groups);
  const bool is_held = std::string_view(tensor.name) == "held gradients";
  for (const plan::SubGroup& group : groups) {
    const plan::PieceRange pieces = layout.pieces_of(group.first, group.count);
    for (int piece = pieces.first; piece < pieces.last; ++piece) {
      const plan::Piece& whole = layout.pieces()[static_cast<std::size_t>(piece)];
      const std::int64_t shard = layout.piece_shard_elements(piece);
      const std::int64_t left = whole.elements - shard * layout.group_rank();
      const std::int64_t begin = layout.piece_shard_offset(piece);
      const std::int64_t end = begin + std::clamp<std::int64_t>(left, 0, shard);
      const std::int64_t offset = group.offset - group.first;
      if (!is_held && group.memory == tensor.memory) written.remove(begin + offset, end + offset);
      if (!is_held) continue;
      for (const plan::GradientPart& part : swapped.parts(begin, shard)) {
        const std::int64_t count = std::clamp<std::int64_t>(end - part.first, 0, part.count);
        if (part.held_offset >= 0) written.remove(part.held_offset, part.held_offset + count);
      }
    }
  }
}

void Replay::run(const std::vector<Step>& steps, const std::string& where) {
  where_ = where;
  recorded_.clear();
  const int live_before = num_live_;
  for (const Step& each : steps) step(each);
  if (num_live_ != live_before) problem(no_tensor, "something is not released");
  // Segments meet on the compute stream: it knows all that the other has done.
  for (std::size_t stream = 1; stream < num_streams; ++stream) {
    if (clocks_[0][stream] != clocks_[stream][stream])
      problem(no_tensor, "stream " + std::to_string(stream) + " is not waited for");
  }
}

void Replay::step(const Step& step) {
  const int stream = static_cast<int>(step.stream);
  auto& clock = clocks_[static_cast<std::size_t>(stream)];
  if (const auto* record = std::get_if<op::Record>(&step.operation)) {
    recorded_.insert(record->event);
    events_[record->event] = clock;
    if (record->event < 0 || record->event >= plan_.num_events)
      problem(no_tensor, "event out of range");
    return;
  }
  if (const auto* wait = std::get_if<op::Wait>(&step.operation)) {
    if (!recorded_.contains(wait->event)) problem(no_tensor, "waits for an event of nobody");
    for (std::size_t other = 0; other < num_streams; ++other)
      clock[other] = std::max(clock[other], events_[wait->event][other]);
    return;
  }
  ++clock[static_cast<std::size_t>(stream)];
  if (const auto* acquired = std::get_if<op::Acquire>(&step.operation)) {
    acquire(acquired->tensor);
  } else if (const auto* released = std::get_if<op::Release>(&step.operation)) {
    release(released->tensor);
  } else {
    const std::vector<Access> found = accesses(plan_, step.operation);
    check_sides(step, found);
    check_sums(step);
    for (const Access& each : found) access(each, stream);
  }
}

void Replay::check_sides(const Step& step, const std::vector<Access>& found) {
  const auto memory_of = [&](const Access& each) { return tensor_of(plan_, each.view).memory; };
  const auto type_of = [&](const Access& each) { return tensor_of(plan_, each.view).dtype; };
  if (kind_of(step.operation) == OperationKind::disk) {
    check_transfer(found.front(), found.back());
    return;
  }
  if (kind_of(step.operation) == OperationKind::copy) {
    const TensorId tensor = found.front().view.tensor;
    if (memory_of(found.front()) == memory_of(found.back()))
      problem(tensor, "copied in its memory");
    if (type_of(found.front()) != type_of(found.back())) problem(tensor, "converted by a copy");
    return;
  }
  if (where_ == "initialize") return;
  const Memory side = step.stream == Stream::host ? Memory::host : Memory::device;
  for (const Access& each : found)
    if (memory_of(each) != side) problem(each.view.tensor, "touched from the other memory");
}

void Replay::check_sums(const Step& step) {
  const StepSum touched = traits_of(step.operation).sum;
  if (touched == StepSum::none) return;
  Clock& sum = sums_[touched == StepSum::loss ? 0 : 1];
  const auto stream = static_cast<std::size_t>(step.stream);
  for (std::size_t other = 0; other < num_streams; ++other) {
    if (sum[other] > clocks_[stream][other])
      problem(no_tensor, "a sum is touched by two streams without an event between");
  }
  sum[stream] = clocks_[stream][stream];
}

void Replay::check_transfer(const Access& from, const Access& to) {
  const bool reads = tensor_of(plan_, from.view).memory == Memory::disk;
  for (const Access& each : {from, to}) {
    const TensorId id = each.view.tensor;
    const PlannedTensor& tensor = tensor_of(plan_, each.view);
    const bool on_disk = (each.view.tensor == from.view.tensor) == reads;
    if (tensor.memory != (on_disk ? Memory::disk : Memory::host))
      problem(id, "is on the wrong side");
    if (tensor.dtype != tensor_of(plan_, from.view).dtype)
      problem(id, "is converted by a transfer");
    const std::int64_t begin = each.view.offset_elements * size_bytes(tensor.dtype);
    const std::int64_t bytes =
        (each.elements * size_bytes(tensor.dtype) + disk_alignment_bytes - 1) /
        disk_alignment_bytes * disk_alignment_bytes;
    if ((tensor.offset_bytes + begin) % disk_alignment_bytes != 0)
      problem(id, "is transferred from within a block");
    if (begin + bytes > tensor.padded_bytes) problem(id, "is transferred beyond its end");
  }
}

void Replay::acquire(TensorId id) {
  const PlannedTensor& tensor = tensor_of(plan_, {id});
  State& state = states_[static_cast<std::size_t>(id)];
  if (state.live) problem(id, "acquired twice");
  if (tensor.offset_bytes % tensor_alignment_bytes != 0 ||
      tensor.padded_bytes < tensor.elements * size_bytes(tensor.dtype)) {
    problem(id, "has a bad place");
  }
  MemoryAccount& account = accounts_[static_cast<std::size_t>(tensor.memory)];
  const auto next = account.by_offset.lower_bound(tensor.offset_bytes);
  const std::int64_t end = tensor.offset_bytes + tensor.padded_bytes;
  if (next != account.by_offset.end() && next->first < end) problem(id, "overlaps the next tensor");
  if (next != account.by_offset.begin()) {
    const PlannedTensor& previous = tensor_of(plan_, {std::prev(next)->second});
    if (previous.offset_bytes + previous.padded_bytes > tensor.offset_bytes)
      problem(id, "overlaps the previous tensor");
  }
  account.by_offset[tensor.offset_bytes] = id;
  state.live = true;
  ++num_live_;
  state.written = {};
  state.touches = {};
  state.touches[0].push_back({0, tensor.elements, clocks_[0][0], true});
  account.live[static_cast<std::size_t>(tensor.category)] += tensor.padded_bytes;
  account.live_bytes += tensor.padded_bytes;
  account.figures.arena_bytes = std::max(account.figures.arena_bytes, end);
  if (account.live_bytes > account.figures.peak_live_bytes) {
    account.figures.peak_live_bytes = account.live_bytes;
    account.figures.categories_at_peak = account.live;
  }
}

void Replay::release(TensorId id) {
  const PlannedTensor& tensor = tensor_of(plan_, {id});
  State& state = states_[static_cast<std::size_t>(id)];
  if (!state.live || tensor.persistent) problem(id, "released though it is not to be");
  check_order(id, {0, tensor.elements, clocks_[0][0], true}, 0);
  state.live = false;
  --num_live_;
  MemoryAccount& account = accounts_[static_cast<std::size_t>(tensor.memory)];
  account.by_offset.erase(tensor.offset_bytes);
  account.live[static_cast<std::size_t>(tensor.category)] -= tensor.padded_bytes;
  account.live_bytes -= tensor.padded_bytes;
}

void Replay::access(const Access& access, int stream) {
  const auto index = static_cast<std::size_t>(access.view.tensor);
  State& state = states_[index];
  const std::int64_t begin = access.view.offset_elements;
  const std::int64_t end = begin + access.elements;
  if (!state.live) problem(access.view.tensor, "touched outside its lifetime");
  if (begin < 0 || access.elements < 0 || end > plan_.tensors[index].elements)
    problem(access.view.tensor, "touched beyond its end");
  if (access.reads() && !state.written.covers(begin, end))
    problem(access.view.tensor, "read before it is written");
  if (access.writes()) state.written.add(begin, end);
  const std::int64_t now =
      clocks_[static_cast<std::size_t>(stream)][static_cast<std::size_t>(stream)];
  const Touch touch{begin, end, now, access.writes()};
  check_order(access.view.tensor, touch, stream);
  state.touches[static_cast<std::size_t>(stream)].push_back(touch);
}

void Replay::check_order(TensorId tensor, const Touch& touch, int stream) {
  const Clock& known = clocks_[static_cast<std::size_t>(stream)];
  for (std::size_t other = 0; other < num_streams; ++other) {
    if (other == static_cast<std::size_t>(stream)) continue;
    for (const Touch& earlier : states_[static_cast<std::size_t>(tensor)].touches[other]) {
      const bool conflict =
          (touch.write || earlier.write) && touch.begin < earlier.end && earlier.begin < touch.end;
      if (conflict && earlier.time > known[other]) {
        problem(tensor, "touched by two streams without an event between");
        return;
      }
    }
  }
}

void Replay::problem(TensorId tensor, const std::string& what) {
  if (problems_.size() >= 10) return;
  const std::string name = tensor == no_tensor ? "" : tensor_of(plan_, {tensor}).name;
  problems_.push_back(where_ + ": " + name + " " + what);
}

}  // namespace dstune::test
