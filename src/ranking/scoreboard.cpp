#include "dstune/ranking/scoreboard.hpp"

#include <algorithm>
#include <cmath>

#include "dstune/base/error.hpp"
#include "packed_rows.hpp"

namespace dstune {

namespace {

/// Rows that are not open are a scoreboard's own.
const PackedRows& packed(const PackedList<Row>& rows) {
  return static_cast<const PackedRows&>(*rows.packing());
}
PackedRows& packed(PackedList<Row>& rows) {
  return static_cast<PackedRows&>(*rows.packing());
}

std::int64_t measured_bytes(const Row& row) {
  return row.record->measurement.peak_memory.total_bytes;
}

}  // namespace

PackedList<Row> rows_of(std::shared_ptr<const MemberSource> members) {
  return PackedList<Row>(std::make_unique<PackedRows>(std::move(members)));
}

Scoreboard::Scoreboard(ScoreboardSetup setup, PackedList<Row> rows)
    : setup_(std::move(setup)), rows_(std::move(rows)), is_interrupted_(rows_.size()) {
  if (setup_.target) calibration_ = setup_.target->time;
  rows_.visit_open([&](std::size_t member, const Row& row) {
    if (row.record) note_first_run(member);
    if (!row.repeats.empty()) repeated_.insert(member);
  });
  loads_.update();
  note_spread();
  rank_anew();
}

PlanStatus Scoreboard::status(std::size_t member) const {
  const Row* const row = rows_.opened(member);
  return row != nullptr ? row->planned.status : packed(rows_).status(member);
}

PruneKind Scoreboard::prune_kind(std::size_t member) const {
  const Row* const row = rows_.opened(member);
  return row != nullptr ? row->planned.prune_kind : packed(rows_).prune_kind(member);
}

std::string_view Scoreboard::reason(std::size_t member) const {
  const Row* const row = rows_.opened(member);
  return row != nullptr ? std::string_view(row->planned.reason) : packed(rows_).reason(member);
}

bool Scoreboard::record(std::size_t member, Record record, const Overheads& overheads) {
  rows_[member].record = std::move(record);
  rows_[member].overheads = overheads;
  const StepEstimate before = step_estimate_;
  note_first_run(member);
  const bool is_loaded_anew = loads_.update();
  if (repeated_.contains(member) || is_loaded_anew) note_spread();
  if (step_estimate_ != before || is_loaded_anew) {
    value_anew();
    fit_calibration();
    return best_ == member;
  }
  // The rule is find_best()'s: the earlier in the space wins among equal ones.
  const bool is_best =
      best_ ? is_better(member, *best_) || (member < *best_ && finite_value(member).has_value() &&
                                            !is_better(*best_, member))
            : finite_value(member).has_value();
  if (is_best) best_ = member;
  if (best_ && (is_best || rows_[member].verified)) {
    const std::size_t answer = find_answer(*best_);
    if (answer != answer_) ++answer_revision_;
    answer_ = answer;
  }
  if (std::ranges::find(setup_.user_runs, member, &UserRun::member) == setup_.user_runs.end())
    return is_best;
  fit_calibration();
  return best_ == member;
}

void Scoreboard::repeat(std::size_t member, Repeat repeat) {
  const Policy::Answering& policy = setup_.policy->answering;
  const bool has_failed = fails_again(rows_[member], policy);
  rows_[member].repeats.push_back(std::move(repeat));
  repeated_.insert(member);
  note_repeat(member);
  if (fails_again(rows_[member], policy) != has_failed) first_runs_.reset();
  if (loads_.update()) {
    first_runs_.reset();
    // A verdict takes the loads as they are when it is asked for.
    if (!verdict_)
      value_anew();
    else
      ++value_revision_;
  }
  note_spread();
}

void Scoreboard::value_anew() {
  ++value_revision_;
  first_runs_.reset();
  is_verdict_new_ = false;
  verdict_ ? judge() : rank_anew();
}

void Scoreboard::verify(std::size_t member, Measurement measurement) {
  PlannedExperiment& planned = rows_[member].planned;
  if (measurement.status == Status::out_of_memory) {
    planned.status = PlanStatus::infeasible;
    planned.reason = measurement.reason;
  }
  rows_[member].verified = std::move(measurement);
  is_verdict_new_ = false;
}

void Scoreboard::calibrate(const TimeCalibration& calibration) {
  first_runs_.reset();
  is_verdict_new_ = false;
  calibration_ = calibration;
  is_calibrated_ = true;
  ++value_revision_;
  if (verdict_) return judge();
  rank_anew();
}

void Scoreboard::predict(std::size_t member, const Prediction& predicted) {
  if (rows_.opened(member) == nullptr) return packed(rows_).predict(member, predicted);
  Prediction& kept = rows_[member].planned.predicted;
  kept.throughput = predicted.throughput;
  kept.target_throughput = predicted.target_throughput;
}

void Scoreboard::leave_out(std::size_t member, std::string reason, PlanStatus status) {
  decide(member, status, prune_kind(member), std::move(reason));
}

void Scoreboard::prune(std::size_t member, std::string reason, PruneKind kind) {
  decide(member, PlanStatus::pruned, kind, std::move(reason));
}

void Scoreboard::decide(std::size_t member, PlanStatus status, PruneKind kind, std::string reason) {
  if (rows_.opened(member) == nullptr) return packed(rows_).decide(member, status, kind, reason);
  PlannedExperiment& planned = rows_[member].planned;
  planned.status = status;
  planned.prune_kind = kind;
  planned.reason = std::move(reason);
}

void Scoreboard::judge() {
  if (is_verdict_new_) return;
  if (!first_runs_) first_runs_ = first_runs();
  // The verdict is on first runs, whatever an earlier verdict made of them.
  judged_.clear();
  verdict_.emplace(*this, Care::full, *first_runs_);
  is_verdict_new_ = true;
  for (std::size_t place = 0; place < verdict_->members().size(); ++place)
    judged_.emplace(verdict_->members()[place], place);
  rank_anew();
}

void Scoreboard::join_finals(const std::vector<std::size_t>& members) {
  for (const std::size_t member : members)
    if (std::ranges::find(finals_.finalists, member) == finals_.finalists.end())
      finals_.finalists.push_back(member);
}

void Scoreboard::end_finals() {
  finals_.is_done = true;
  finals_.reason.clear();
}

void Scoreboard::give_up_finals(std::string reason) {
  require(!finals_.is_done, "results of the finals stay");
  finals_.reason = std::move(reason);
}

void Scoreboard::conclude(double elapsed_s, std::optional<double> chance_of_better,
                          std::optional<HostLoad> load) {
  elapsed_s_ = elapsed_s;
  chance_of_better_ = chance_of_better;
  load_ = load;
}

void Scoreboard::note_first_value(std::size_t member) {
  if (const auto value = value_of_first_run(member, setup_.metric))
    first_values_.insert_or_assign(member, *value);
  else
    first_values_.erase(member);
}

void Scoreboard::note_first_run(std::size_t member) {
  note_first_value(member);
  ++num_first_runs_;
  num_results_ += rows_[member].record->measurement.status == Status::ok ? 1 : 0;
  note_interruptions(member);
  note_facts(member);
}

/// Follows docs/inside/measuring.md.
void Scoreboard::note_interruptions(std::size_t member) {
  const Policy::Answering& policy = setup_.policy->answering;
  const std::vector<double> timed_s = timed_steps_s(rows_[member].record->measurement);
  if (!setup_.are_steps_alike || timed_s.size() < policy.steps_of_interrupted) return;
  std::optional<bool>& is_interrupted = is_interrupted_[member];
  if (is_interrupted)
    num_interrupted_ -= *is_interrupted ? 1 : 0;
  else
    ++num_timed_;
  is_interrupted = mean_interval(timed_s, setup_.policy->intervals).mean >
                   policy.interrupted_ratio * median(timed_s);
  num_interrupted_ += *is_interrupted ? 1 : 0;
  const bool is_usual = num_timed_ >= policy.runs_of_interrupted &&
                        static_cast<double>(num_interrupted_) >
                            policy.interrupted_share * static_cast<double>(num_timed_);
  const StepEstimate estimate = is_usual ? StepEstimate::first_quartile : StepEstimate::mean;
  if (estimate == step_estimate_) return;
  step_estimate_ = estimate;
  loads_ = {};
  visit_run([&](std::size_t each, const Row&) {
    note_first_value(each);
    note_facts(each);
  });
}

void Scoreboard::note_spread() {
  std::vector<std::vector<double>> means = means_in_search();
  for (std::vector<double>& of_member : means_of_finals()) means.push_back(std::move(of_member));
  half_width_of_run_ =
      dstune::half_width_of_run(pooled_spread(spread_of(means), setup_.policy->racing));
}

void Scoreboard::rank_anew() {
  best_ = find_best();
  answer_ = best_ ? std::optional(find_answer(*best_)) : std::nullopt;
  ++answer_revision_;
}

/// Another of the user's own configurations was measured here.
void Scoreboard::fit_calibration() {
  std::vector<CalibrationPoint> points;
  for (const UserRun& run : setup_.user_runs) {
    const auto latency_us = first_value(run.member, Metric::latency);
    if (!latency_us || !(latency_us->value > 0)) continue;
    const Row& row = rows_[run.member];
    const double step_s = latency_us->value * 1e-6 * std::exp(-load_of(run.member).expected);
    points.push_back({step_s, run.step_s, row.planned.experiment.config.precision, row.overheads});
  }
  if (points.empty()) return;
  const Policy::Calibrating& policy = setup_.policy->calibrating;
  calibrate(fit_time(
      points, setup_.target ? prior_of(*setup_.target, policy) : unknown_target(policy), policy));
}

bool Scoreboard::is_better(std::size_t member, std::size_t other) const {
  const std::optional<double> mine = finite_value(member);
  const std::optional<double> theirs = finite_value(other);
  if (!mine || !theirs) return mine.has_value();
  if (*mine != *theirs) return is_minimised(setup_.metric) ? *mine < *theirs : *mine > *theirs;
  return measured_bytes(rows_[member]) < measured_bytes(rows_[other]);
}

std::optional<std::size_t> Scoreboard::find_best() const {
  if (verdict_ && !verdict_->members().empty()) return declared_best(*verdict_);
  std::optional<std::size_t> best;
  visit_run([&](std::size_t member, const Row&) {
    if (best ? is_better(member, *best) : finite_value(member).has_value()) best = member;
  });
  return best;
}

/// Follows docs/inside/measuring.md.
std::size_t Scoreboard::declared_best(const Verdict& verdict) const {
  const Policy::Answering& policy = setup_.policy->answering;
  std::size_t best = 0;
  for (std::size_t place = 1; place < verdict.members().size(); ++place) {
    if (verdict.chance_best(place) < verdict.chance_best(0) - policy.as_likely) continue;
    const double behind = score_at(verdict.members()[0], verdict.speed(0).expected) -
                          score_at(verdict.members()[place], verdict.speed(place).expected);
    if (behind <= policy.as_good && measured_bytes(rows_[verdict.members()[place]]) <
                                        measured_bytes(rows_[verdict.members()[best]]))
      best = place;
  }
  const auto baseline = setup_.baseline ? verdict.place_of(*setup_.baseline) : std::nullopt;
  if (baseline && *baseline != best && verdict.chance_above(best, *baseline) < policy.clearly)
    best = *baseline;
  return verdict.members()[best];
}

std::size_t Scoreboard::find_answer(std::size_t best) const {
  auto fastest = verified_value(rows_[best], setup_.metric);
  if (!fastest) return best;
  std::size_t answer = best;
  visit_run([&](std::size_t member, const Row& row) {
    // Without a measurement here there would be nothing to write down.
    if (!first_values_.contains(member)) return;
    const auto value = verified_value(row, setup_.metric);
    if (!value) return;
    const bool is_faster =
        is_minimised(setup_.metric) ? value->value < fastest->value : value->value > fastest->value;
    if (!is_faster) return;
    fastest = value;
    answer = member;
  });
  return answer;
}

namespace {

/// The first ones by this rule, at most so many.
void keep_best(std::vector<std::size_t>& members, std::size_t most, const auto& is_better) {
  const auto end = members.begin() + static_cast<std::ptrdiff_t>(std::min(most, members.size()));
  std::partial_sort(members.begin(), end, members.end(), is_better);
  members.erase(end, members.end());
}

}  // namespace

std::vector<std::size_t> Scoreboard::best_members(std::size_t max_members) const {
  std::vector<std::size_t> members;
  visit_run([&](std::size_t member, const Row&) {
    if (finite_value(member)) members.push_back(member);
  });
  keep_best(members, max_members, [&](std::size_t one, std::size_t other) {
    if (one == best_ || other == best_) return one == best_ && other != best_;
    return is_better(one, other) || (one < other && !is_better(other, one));
  });
  return members;
}

}  // namespace dstune
