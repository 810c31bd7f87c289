#include "creation.hpp"

#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

// What the thread and its creator share; the later of the two deletes it.
struct Creation {
  std::shared_ptr<Communicator> parent;
  std::vector<int> ranks;
  int tag = 0;

  std::mutex mutex;
  bool done = false;
  bool given_up = false;
  std::optional<Communicator> made;
  std::exception_ptr error;
};

void create(const std::shared_ptr<Creation>& creation) {
  std::optional<Communicator> made;
  std::exception_ptr error;
  try {
    made = creation->parent->create_group(creation->ranks, creation->tag);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(creation->mutex);
  // The others have given up as well, so nobody would free it with us.
  if (creation->given_up && made) made->abandon();
  creation->made = std::move(made);
  creation->error = error;
  creation->done = true;
}

}  // namespace

Communicator create_group_until(std::shared_ptr<Communicator> parent, std::span<const int> ranks,
                                int tag, const Waiter& waiter) {
  auto creation = std::make_shared<Creation>();
  creation->parent = std::move(parent);
  creation->ranks.assign(ranks.begin(), ranks.end());
  creation->tag = tag;
  std::thread thread([creation] { create(creation); });
  try {
    waiter.until(
        [&] {
          const std::lock_guard lock(creation->mutex);
          return creation->done;
        },
        "making a communicator");
  } catch (...) {
    const std::lock_guard lock(creation->mutex);
    creation->given_up = true;
    creation->parent->abandon();
    if (creation->made) creation->made->abandon();
    thread.detach();
    throw;
  }
  thread.join();
  if (creation->error) std::rethrow_exception(creation->error);
  return std::move(*creation->made);
}

}  // namespace dstune
