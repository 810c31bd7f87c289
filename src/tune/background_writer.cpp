#include "dstune/tune/background_writer.hpp"

#include <utility>

namespace dstune {

BackgroundWriter::BackgroundWriter() : thread_([this] { run(); }) {}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundWriter::add(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    check_failure();
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void BackgroundWriter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || (queue_.empty() && !is_busy_); });
  check_failure();
}

void BackgroundWriter::check_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

void BackgroundWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    is_busy_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    is_busy_ = false;
    if (failure) {
      failure_ = failure;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace dstune
