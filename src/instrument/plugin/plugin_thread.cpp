#include "plugin/plugin_thread.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "dstune/kernels/kernels.hpp"

namespace dstune::train {
namespace {

bool is_open(int descriptor) {
  return fcntl(descriptor, F_GETFD) != -1;
}

/// Those of the calling thread.
std::vector<int> open_descriptors() {
  std::vector<int> open;
  DIR* const folder = opendir("/proc/thread-self/fd");
  if (folder == nullptr) return open;
  while (const dirent* const entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && descriptor != dirfd(folder)) open.push_back(descriptor);
  }
  closedir(folder);
  return open;
}

}  // namespace

std::shared_ptr<PluginThread> PluginThread::current() {
  static std::mutex mutex;
  static std::shared_ptr<PluginThread> current;
  const std::lock_guard lock(mutex);
  if (current == nullptr || current->is_damaged_) {
    current = std::make_shared<PluginThread>();
    // Never joined: a plug-in may not come back.
    std::thread([self = current] { self->serve(); }).detach();
  }
  return current;
}

void PluginThread::serve() {
  // If the system refuses it, the descriptors are everybody's, as they would be without a thread.
  unshare(CLONE_FILES);
  // The worker's own thread has it, too: the default would double short sleeps.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  sentinel_ = eventfd(0, EFD_CLOEXEC);
  descriptors_ = open_descriptors();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return task_ != nullptr && !task_->is_done; });
    const std::shared_ptr<Task> task = task_;
    lock.unlock();
    try {
      task->work();
    } catch (...) {
      task->thrown = std::current_exception();
    }
    lock.lock();
    task->is_done = true;
    changed_.notify_all();
  }
}

bool PluginThread::run(const std::function<void()>& work,
                       std::optional<Waiter::Clock::time_point> deadline) {
  const auto task = std::make_shared<Task>(Task{work, nullptr});
  std::unique_lock lock(mutex_);
  task_ = task;
  changed_.notify_all();
  const auto is_done = [&] { return task->is_done; };
  if (!deadline) {
    changed_.wait(lock, is_done);
  } else if (!changed_.wait_until(lock, *deadline, is_done)) {
    return false;
  }
  if (task->thrown) std::rethrow_exception(std::exchange(task->thrown, nullptr));
  return true;
}

void PluginThread::use(Device& device) {
  run([&] {
    device.begin_thread();
    // OpenMP's setting belongs to the thread.
    kernels::set_cpu_threads(device.threads());
  });
}

bool PluginThread::has_closed_descriptors() {
  is_damaged_ = is_damaged_ || !std::ranges::all_of(descriptors_, is_open);
  return is_damaged_;
}

bool PluginThread::has_closed_sentinel() const {
  return sentinel_ >= 0 && !is_open(sentinel_);
}

}  // namespace dstune::train
