/// Operations that are noted once and asked for as a whole.

#include <algorithm>

#include "dispatch.hpp"

namespace dstune::train {
namespace {

/// Whether an operation is work of the device's queues alone, given by addresses and numbers that
/// are the same in every step. The others wait on the host, or take what it knows only then.
struct IsOfQueues {
  template <class Op>
  bool operator()(const Op&) const {
    return !is_one_of<Op, op::ReadDisk, op::WriteDisk, op::FinishLoss, op::CheckOverflow,
                      op::ClipFactor, op::UpdateParameters>;
  }
};

}  // namespace

bool Dispatch::is_recordable(const std::vector<Step>& steps) {
  return std::ranges::all_of(steps, [](const Step& step) {
    return is_of_device(step.stream) && std::visit(IsOfQueues{}, step.operation);
  });
}

Dispatch::Recorded Dispatch::record(const std::vector<Step>& steps) {
  Recorder& recorder = *queues_.recorder();
  const std::size_t first = phases_.size();
  Recorded recorded{.work = nullptr, .phases = {}, .loss_scale = scaler_.scale()};
  const auto leave = [&] {
    phases_.resize(first);
    stream_ = Stream::compute;
  };
  try {
    recorder.begin(static_cast<int>(first));
    stream_ = Stream::compute;
    run(steps);
    recorded.work = recorder.end();
  } catch (...) {
    recorder.drop();
    leave();
    throw;
  }
  recorded.phases.assign(phases_.begin() + static_cast<std::ptrdiff_t>(first), phases_.end());
  leave();
  return recorded;
}

void Dispatch::replay(const Recorded& recorded) {
  queues_.recorder()->replay(*recorded.work, static_cast<int>(phases_.size()));
  phases_.insert(phases_.end(), recorded.phases.begin(), recorded.phases.end());
  stream_ = Stream::compute;
}

}  // namespace dstune::train
