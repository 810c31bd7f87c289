// What the controller writes down, and when others hear of it.
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
    const Record& record = *board_.row(index).record;
    if (record.measurement.status == Status::raced_out && !record.is_alone) {
      held_.insert(index);
    } else {
      write_metrics(index);
    }
  }
  ended_.clear();
  if (board_.answer_revision() != written_revision_ &&
      Clock::now() - best_written_at_ > best_interval)
    write_recommendation(recommendation_of(board_));
  return said;
}

/// Once for each experiment, whose record is never touched again.
void Controller::write_metrics(std::size_t index) {
  held_.erase(index);
  const Record& record = *board_.row(index).record;
  writer_.add([this, &record] { results_.write_metrics(record, options_.metric); });
}

void Controller::write_recommendation(const std::optional<Recommendation>& recommendation) {
  written_revision_ = board_.answer_revision();
  if (!recommendation) return;
  results_.write_optimal(*recommendation, options_.training_command, options_.arg_mappings);
  results_.write_verification(*recommendation, options_.training_command, options_.arg_mappings);
  best_written_at_ = Clock::now();
}

void Controller::finish() {
  if (!stopping_since_ || is_search_over()) {
    for (const auto& [index, reason] : tuner_.skipped())
      board_.leave_out(index, reason, PlanStatus::pruned);
  }
  if (stopping_since_) {
    for (std::size_t index = 0; index < board_.rows().size(); ++index) {
      const Row& row = board_.row(index);
      if (row.planned.status == PlanStatus::planned && !row.record)
        board_.leave_out(index, "the job was stopped before it had run");
    }
    if (!board_.finals().is_done) board_.give_up_finals("stopped early");
  }
  board_.conclude(seconds(Clock::now() - began_), tuner_.chance_of_better());
  std::set<std::size_t> settled = held_;
  for (const auto& [number, attempt] : running_) settled.erase(attempt.index);
  for (const std::size_t index : settled) write_metrics(index);
  answer_ = answer_of(board_);
  write_recommendation(answer_.recommendation);
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
  progress_.end();
}

}  // namespace dstune
