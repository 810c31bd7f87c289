#include "control/publisher.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"

namespace dstune {
namespace {

/// The answer is synced to disk, which may take long: in a burst of improvements not each of them,
/// but at most one in this time; what comes in between is written at its end. How sure it is takes
/// the longer to say the more was measured: it has this share of the processor at most.
constexpr std::chrono::milliseconds answer_interval{500};
constexpr int answer_share = 50;

/// Files of an experiment wait so long after its end: a burst of short experiments is not held up
/// by files, and a job of long ones is written while the next is measured.
constexpr std::chrono::seconds files_delay{5};
/// The writer holds copies of so many records at most; the rest waits by number.
constexpr std::size_t max_handed_over = 64;

/// The calling thread's.
std::chrono::nanoseconds processor_time() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

}  // namespace

void BackgroundWriter::add(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    check_failure();
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

std::size_t BackgroundWriter::num_waiting() {
  const std::lock_guard lock(mutex_);
  check_failure();
  return queue_.size();
}

void BackgroundWriter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || (queue_.empty() && !is_busy_); });
  check_failure();
}

void BackgroundWriter::check_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

void BackgroundWriter::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, stop, [this] { return !queue_.empty(); });
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
  for (auto& [member, text] : std::exchange(tracebacks_, {})) {
    const std::string& name = scoreboard_.row(member).planned.experiment.name;
    writer_.add([this, &name, kept = std::move(text)] { results_.write_traceback(name, kept); });
  }
  for (const std::size_t member : std::exchange(ended_, {})) waiting_.push_back({member, now});
  while (!waiting_.empty() && now - waiting_.front().since >= files_delay &&
         writer_.num_waiting() < max_handed_over) {
    write_files(waiting_.front().member);
    waiting_.pop_front();
  }
  if (scoreboard_.answer_revision() == written_revision_ || now < next_answer_at_) return;
  const auto before = processor_time();
  write(recommendation_of(scoreboard_));
  next_answer_at_ = now + std::max<std::chrono::nanoseconds>(
                              answer_interval, answer_share * (processor_time() - before));
}

void Publisher::write_files(std::size_t member) {
  const Record& record = *scoreboard_.row(member).record;
  if (begun_.erase(member) > 0)
    writer_.add([this, experiment = record.experiment] { results_.write_experiment(experiment); });
  if (record.measurement.status == Status::raced_out && !record.is_alone) {
    held_.insert(member);
  } else {
    write_metrics(member);
  }
}

/// Once for each experiment, and again where a repetition has something to tell.
void Publisher::write_metrics(std::size_t member) {
  held_.erase(member);
  Record record = *scoreboard_.row(member).record;
  for (const Repeat& repeat : scoreboard_.row(member).repeats)
    std::ranges::copy(repeat.measurement.notes, std::back_inserter(record.measurement.notes));
  const auto target = scoreboard_.target_time_of_first_run(member);
  auto target_value = value_so_far(record.measurement, scoreboard_.metric(), record.experiment);
  if (target_value) target_value = scoreboard_.in_target(member, *target_value);
  writer_.add([this, record = std::move(record), target, target_value] {
    results_.write_metrics(record, scoreboard_.metric(), target, target_value);
  });
}

void Publisher::write(const std::optional<Recommendation>& recommendation) {
  written_revision_ = scoreboard_.answer_revision();
  if (!recommendation) return;
  results_.write_optimal(*recommendation, options_.training_command);
  results_.write_verification(*recommendation, options_.training_command);
}

void Publisher::show(const JobState& state, bool is_quiet, SteadyClock::time_point now) {
  if (times_.is_state_due(state.phase, now))
    writer_.add([this, state] {
      try {
        results_.write_state(state);
      } catch (const IoError& error) {
        warn_once(error);
      }
    });
  if (!is_quiet || !times_.is_page_due(now)) return;
  const auto before = processor_time();
  try {
    results_.write_page(answer_of(scoreboard_), state);
  } catch (const IoError& error) {
    warn_once(error);
  }
  times_.note_page(now, processor_time() - before);
}

/// The search goes on without: what must be kept is in the journal.
void Publisher::warn_once(const IoError& error) {
  if (!has_warned_.exchange(true)) log::warning(fmt::format(log_text::page_not_kept, error.what()));
}

void Publisher::finish(const std::set<std::size_t>& running, const JobState& state) {
  for (const Waiting& one : std::exchange(waiting_, {})) write_files(one.member);
  for (const std::size_t member : std::exchange(ended_, {})) write_files(member);
  // Those of members that run, and of such that were cut short.
  for (const std::size_t member : std::exchange(begun_, {}))
    writer_.add([this, experiment = scoreboard_.row(member).planned.experiment] {
      results_.write_experiment(experiment);
    });
  std::vector<std::size_t> settled;
  std::ranges::set_difference(held_, running, std::back_inserter(settled));
  for (const std::size_t member : settled) write_metrics(member);
  answer_ = answer_of(scoreboard_);
  write(answer_.recommendation);  // how sure it is is known only now
  if (answer_.best) results_.write_validation(answer_);
  std::optional<MemoryTimeline> memory;
  if (answer_.recommendation && options_.memory_timeline) {
    const Experiment& answer = scoreboard_.row(answer_.recommendation->member).record->experiment;
    memory = options_.memory_timeline(answer);
    // Behind the experiment's other files, whose folder it needs.
    if (memory)
      writer_.add([this, &answer, memory] { results_.write_memory(answer.name, *memory); });
  }
  results_.write_summary(answer_, state, memory);
  writer_.add([this, state] { results_.write_state(state); });  // behind those before it
}

}  // namespace dstune
