#include "dstune/comm/mailbox.hpp"

#include <algorithm>
#include <chrono>

#include "dstune/base/error.hpp"
#include "dstune/base/wait.hpp"

namespace dstune {
namespace {

// Apart even where one communicator serves both directions.
constexpr int to_worker_tag = 1;
constexpr int to_controller_tag = 2;

}  // namespace

MpiMailbox::MpiMailbox(const Communicator& to_workers, const Communicator& to_controller, Side side)
    : outgoing_communicator_(side == Side::controller ? to_workers : to_controller),
      incoming_communicator_(side == Side::controller ? to_controller : to_workers),
      send_tag_(side == Side::controller ? to_worker_tag : to_controller_tag),
      receive_tag_(side == Side::controller ? to_controller_tag : to_worker_tag) {}

MpiMailbox::~MpiMailbox() {
  try {
    reap();
  } catch (const MpiError&) {
    // Whatever is left counts as unfinished.
  }
  // The library may still read what has not gone out.
  for (Outgoing& message : outgoing_) static_cast<void>(message.data.release());
}

void MpiMailbox::send(int world_rank, Bytes data) {
  reap();
  // The library reads it from the start on, so it is kept before.
  Outgoing& message = outgoing_.emplace_back();
  message.data = std::make_unique<Bytes>(std::move(data));
  message.request = outgoing_communicator_.start_send(message.data->data(), message.data->size(),
                                                      world_rank, send_tag_);
}

std::optional<Mailbox::Message> MpiMailbox::try_receive() {
  reap();
  return incoming_communicator_.try_receive(receive_tag_);
}

bool MpiMailbox::flush(double timeout_s) {
  const auto limit = Waiter::Clock::now() + std::chrono::duration_cast<Waiter::Clock::duration>(
                                                std::chrono::duration<double>(timeout_s));
  const Waiter waiter(limit, nullptr, true);
  try {
    waiter.until(
        [this] {
          reap();
          return outgoing_.empty();
        },
        "sending the last messages");
  } catch (const CollectiveError&) {
    return false;
  }
  return true;
}

void MpiMailbox::reap() {
  // A dead receiver's message never completes and must not hold up the others'.
  std::erase_if(outgoing_, [](Outgoing& message) { return message.request.test(); });
}

}  // namespace dstune
