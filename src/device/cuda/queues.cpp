#include "queues.hpp"

#include "dstune/kernels/cuda.hpp"

namespace dstune::cuda {

void StreamQueues::prepare(const Numbers& numbers, const Waiter& waiter) {
  waiter_ = waiter;
  finish_all();
  come_to_rest();
  const auto queues = static_cast<std::size_t>(numbers.queues);
  while (streams_.size() < queues) {
    Stream made = nullptr;
    check(runtime_, runtime_.create_stream(made), "making a stream");
    streams_.emplace_back(Owned{&runtime_, made});
  }
  // To wait for one that is not recorded yet is to wait for nothing; one of an earlier use that a
  // graph was captured with could not be waited for at all.
  events_.clear();
  grow(events_, numbers.events, false);
  grow(stamps_, numbers.stamps, true);
  grow(ends_, static_cast<int>(streams_.size()), false);
  use(0);
}

void StreamQueues::grow(std::vector<UniqueEvent>& events, int count, bool takes_time) {
  while (events.size() < static_cast<std::size_t>(count)) {
    Event made = nullptr;
    check(runtime_, runtime_.create_event(made, takes_time), "making an event");
    events.emplace_back(Owned{&runtime_, made});
  }
}

void StreamQueues::use(int queue) {
  used_ = static_cast<std::size_t>(queue);
  kernels::set_cuda_stream(stream(used_));
}

void StreamQueues::record(int event) {
  check(runtime_, runtime_.record(at(events_, event), stream(used_)), "recording an event");
}

void StreamQueues::wait(int event) {
  check(runtime_, runtime_.wait(stream(used_), at(events_, event)), "making a stream wait");
}

void StreamQueues::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  check(runtime_, runtime_.copy(to, from, static_cast<std::size_t>(bytes), stream(used_)),
        "copying between the GPU and its host");
}

void StreamQueues::await(Event event) {
  const auto is_reached = [&] {
    const Code code = runtime_.query(event);
    if (code == runtime_.not_ready()) return false;
    check(runtime_, code, "waiting for the GPU");
    return true;
  };
  waiter_.until(is_reached, "the GPU to do what it was asked for");
}

void StreamQueues::finish(int event) {
  await(at(events_, event));
}

void StreamQueues::record_end(std::size_t queue) {
  check(runtime_, runtime_.record(at(ends_, static_cast<int>(queue)), stream(queue)),
        "recording an event");
}

void StreamQueues::finish_used() {
  record_end(used_);
  await(at(ends_, static_cast<int>(used_)));
}

void StreamQueues::finish_all() {
  // Where making the last ones failed there are more streams.
  for (std::size_t queue = 0; queue < ends_.size(); ++queue) record_end(queue);
  for (const UniqueEvent& end : ends_) await(end.value().object);
  may_be_at_graph_ = false;
}

void StreamQueues::stamp(int stamp) {
  const Event event = at(stamps_, stamp);
  check(runtime_,
        is_recording_ ? runtime_.record_in_graph(event, stream(used_))
                      : runtime_.record(event, stream(used_)),
        "recording an event");
}

double StreamQueues::seconds_between(int first, int second) {
  float milliseconds = 0;
  check(runtime_, runtime_.get_milliseconds(milliseconds, at(stamps_, first), at(stamps_, second)),
        "reading the time between two events");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace dstune::cuda
