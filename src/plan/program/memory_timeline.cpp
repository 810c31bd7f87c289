#include <array>
#include <numeric>
#include <string>

#include "dstune/plan/memory.hpp"

namespace dstune {
namespace {

using Bytes = std::array<std::int64_t, num_categories>;

std::int64_t sum(const Bytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

class Recorder {
 public:
  explicit Recorder(const StepPlan& plan) : plan_(plan) {
    for (const PlannedTensor& tensor : plan.tensors)
      if (tensor.persistent) account(tensor, tensor.padded_bytes);
  }

  /// One segment, whose micro-steps are named; "": it is none.
  void run(const Segment& segment, const std::string& name) {
    const bool is_micro_step = !name.empty();
    begin_part(is_micro_step ? name : "update", is_micro_step ? "forward" : "");
    bool is_forward = is_micro_step;
    for (const Step& step : segment.steps) {
      play(step.operation);
      const auto* const mark = std::get_if<op::Mark>(&step.operation);
      // The head goes to and fro: backward has begun once it has.
      if (mark == nullptr || !is_forward || mark->phase != Phase::backward) continue;
      is_forward = false;
      begin_part(name, "backward");
    }
  }

  MemoryTimeline finish() && {
    for (int category = 0; category < num_categories; ++category)
      timeline_.categories.emplace_back(to_text(static_cast<Category>(category)));
    auto& parts = timeline_.parts;
    if (!parts.empty() && parts.back().first_instant == accounts_.front().instants.size())
      parts.pop_back();
    add("device", Memory::device);
    if (plan_.host_memory.arena_bytes > 0) add("host", Memory::host);
    return std::move(timeline_);
  }

 private:
  struct MemoryAccount {
    Bytes live{}, fullest{};
    std::vector<MemoryTimeline::Instant> instants;
  };

  void account(const PlannedTensor& tensor, std::int64_t bytes) {
    MemoryAccount& of = accounts_[static_cast<std::size_t>(tensor.memory)];
    of.live[static_cast<std::size_t>(tensor.category)] += bytes;
    if (sum(of.live) > sum(of.fullest)) of.fullest = of.live;
  }

  void play(const Operation& operation) {
    if (const auto* const acquired = std::get_if<op::Acquire>(&operation)) {
      const PlannedTensor& tensor = plan_.tensors[acquired->tensor];
      account(tensor, tensor.padded_bytes);
    } else if (const auto* const released = std::get_if<op::Release>(&operation)) {
      const PlannedTensor& tensor = plan_.tensors[released->tensor];
      account(tensor, -tensor.padded_bytes);
    } else if (kind_of(operation) != OperationKind::order) {
      for (MemoryAccount& each : accounts_) {
        each.instants.emplace_back(each.fullest.begin(), each.fullest.end());
        each.fullest = each.live;
      }
    }
  }

  void begin_part(const std::string& name, const std::string& phase) {
    auto& parts = timeline_.parts;
    const std::size_t now = accounts_.front().instants.size();
    // The next part takes the place of a part in which nothing was done.
    if (!parts.empty() && parts.back().first_instant == now) parts.pop_back();
    if (!parts.empty() && parts.back().name == name && parts.back().phase == phase) return;
    parts.push_back({name, phase, now});
  }

  void add(const char* name, Memory memory) {
    timeline_.memories.push_back(
        {name, std::move(accounts_[static_cast<std::size_t>(memory)].instants)});
  }

  const StepPlan& plan_;
  std::array<MemoryAccount, num_memories> accounts_;
  MemoryTimeline timeline_;
};

std::string micro_steps(std::int64_t first, std::int64_t count) {
  if (count == 1) return "micro-step " + std::to_string(first);
  return "micro-steps " + std::to_string(first) + " to " + std::to_string(first + count - 1);
}

}  // namespace

MemoryTimeline memory_timeline(const StepPlan& plan) {
  Recorder recorder(plan);
  for (std::size_t index = 0; index < plan.tracing.size(); ++index)
    recorder.run(plan.tracing[index], "first step, micro-step " + std::to_string(index + 1));
  std::int64_t micro_step = 1;
  for (const Segment& segment : plan.cycle) {
    const bool is_update =
        segment.kind == Segment::Kind::update || segment.kind == Segment::Kind::guarded_update;
    recorder.run(segment, is_update ? "" : micro_steps(micro_step, segment.repeat));
    if (!is_update) micro_step += segment.repeat;
  }
  return std::move(recorder).finish();
}

}  // namespace dstune
