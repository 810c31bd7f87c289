// What the controller writes down, and when others hear of it.
#include "dstune/report/validation.hpp"
#include "dstune/tune/controller.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

/// The answer is synced to disk, which may take long: in a burst of improvements not each of them,
/// but at most one in this time; what comes in between is written at its end.
constexpr std::chrono::milliseconds best_interval{500};

}  // namespace

/// One commit makes everything of this round durable; only then does anybody hear of it.
bool Controller::publish() {
  journal_.commit();
  for (const auto& [world_rank, message] : outbox_) mailbox_.send(world_rank, encode(message));
  const bool said = !outbox_.empty();
  outbox_.clear();
  for (const std::size_t index : dispatched_) {
    const Experiment& experiment = space_.members[index].planned.experiment;
    writer_.add([this, &experiment] { results_.write_experiment(experiment); });
  }
  dispatched_.clear();
  for (const std::size_t index : ended_) {
    const Record& record = *report_.rows[index].record;
    if (record.measurement.status == Status::raced_out && !record.is_alone) {
      held_.insert(index);
    } else {
      write_metrics(index);
    }
  }
  ended_.clear();
  if (answer_ != written_answer_ && Clock::now() - best_written_at_ > best_interval) write_best();
  return said;
}

/// Once for each experiment, whose record is never touched again.
void Controller::write_metrics(std::size_t index) {
  held_.erase(index);
  const Record& record = *report_.rows[index].record;
  writer_.add([this, &record] { results_.write_metrics(record, options_.metric); });
}

void Controller::write_best() {
  if (answer_ == written_answer_) return;
  results_.write_optimal(report_.rows[*answer_], report_, options_.training_command,
                         options_.arg_mappings);
  results_.write_verification(report_, options_.training_command, options_.arg_mappings);
  written_answer_ = answer_;
  best_written_at_ = Clock::now();
}

void Controller::finish() {
  if (!stopping_since_ || is_search_over()) {
    for (const auto& [index, reason] : tuner_.skipped()) {
      report_.rows[index].planned.status = PlanStatus::pruned;
      report_.rows[index].planned.reason = reason;
    }
  }
  if (stopping_since_) {
    for (Row& row : report_.rows)
      if (row.planned.status == PlanStatus::planned && !row.record)
        row.planned.reason = "the job was stopped before it had run";
  }
  report_.half_width_of_run = half_width_of_run(report_);  // an earlier job may have had runs, too
  report_.elapsed_s = seconds(Clock::now() - began_);
  report_.chance_of_better = tuner_.chance_of_better();
  if (stopping_since_ && !report_.validation.is_done) report_.validation.reason = "stopped early";
  std::set<std::size_t> settled = held_;
  for (const auto& [number, attempt] : running_) settled.erase(attempt.index);
  for (const std::size_t index : settled) write_metrics(index);
  written_answer_.reset();  // how sure it is is known only now
  write_best();
  if (best_) results_.write_validation(report_);
  // Again: the others of the best few may have come after the best.
  results_.write_verification(report_, options_.training_command, options_.arg_mappings);
  if (best_ && options_.memory_timeline) {
    const Experiment& best = report_.rows[*best_].record->experiment;
    // Behind the experiment's other files, whose folder it needs.
    writer_.add([this, &best] {
      if (const auto timeline = options_.memory_timeline(best))
        results_.write_memory(best.name, *timeline);
    });
  }
  results_.write_summary(report_);
  progress_.end();
}

}  // namespace dstune
