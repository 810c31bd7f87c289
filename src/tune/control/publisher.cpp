#include "control/publisher.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace dstune {
namespace {

/// The answer is synced to disk, which may take long: in a burst of improvements not each of them,
/// but at most one in this time; what comes in between is written at its end.
constexpr std::chrono::milliseconds answer_interval{500};

}  // namespace

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

void Publisher::publish(SteadyClock::time_point now) {
  for (const std::size_t row : std::exchange(started_, {})) {
    const Experiment& experiment = board_.row(row).planned.experiment;
    writer_.add([this, &experiment] { results_.write_experiment(experiment); });
  }
  for (const std::size_t row : std::exchange(ended_, {})) {
    const Record& record = *board_.row(row).record;
    if (record.measurement.status == Status::raced_out && !record.is_alone) {
      held_.insert(row);
    } else {
      write_metrics(row);
    }
  }
  if (board_.answer_revision() != written_revision_ && now - written_at_ > answer_interval)
    write(recommendation_of(board_), now);
}

/// Once for each experiment, whose record is never touched again.
void Publisher::write_metrics(std::size_t row) {
  held_.erase(row);
  const Record& record = *board_.row(row).record;
  writer_.add([this, &record] { results_.write_metrics(record, board_.metric()); });
}

void Publisher::write(const std::optional<Recommendation>& recommendation,
                      SteadyClock::time_point now) {
  written_revision_ = board_.answer_revision();
  if (!recommendation) return;
  results_.write_optimal(*recommendation, options_.training_command, options_.arg_mappings);
  results_.write_verification(*recommendation, options_.training_command, options_.arg_mappings);
  written_at_ = now;
}

void Publisher::finish(const std::set<std::size_t>& running, SteadyClock::time_point now) {
  std::vector<std::size_t> settled;
  std::ranges::set_difference(held_, running, std::back_inserter(settled));
  for (const std::size_t row : settled) write_metrics(row);
  answer_ = answer_of(board_);
  write(answer_.recommendation, now);  // how sure it is is known only now
  if (answer_.best) results_.write_validation(answer_);
  if (answer_.best && options_.memory_timeline) {
    const Experiment& best = board_.row(*answer_.best).record->experiment;
    // Behind the experiment's other files, whose folder it needs.
    writer_.add([this, &best] {
      if (const auto timeline = options_.memory_timeline(best))
        results_.write_memory(best.name, *timeline);
    });
  }
  results_.write_summary(answer_);
}

}  // namespace dstune
