// The recommendation, and the chance that it is the best.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/run_again.hpp"

namespace dstune {

namespace {

std::optional<double> joules_of(const Row& row) {
  if (!row.record) return std::nullopt;
  const std::int64_t batch = batch_of(row.record->experiment);
  double sum = 0;
  int count = 0;
  const auto add = [&](const Measurement& measurement) {
    const auto joules = joules_per_sample(measurement, batch);
    sum += joules.value_or(0);
    count += joules ? 1 : 0;
  };
  add(row.record->measurement);
  for (const Repeat& repeat : row.repeats) add(repeat.measurement);
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<CalibrationSummary> calibration_of(const Scoreboard& scoreboard) {
  if (!scoreboard.is_calibrated()) return std::nullopt;
  CalibrationSummary summary{*scoreboard.calibration(), scoreboard.setup().memory_offset_bytes};
  for (const UserRun& run : scoreboard.setup().user_runs) {
    const auto latency_us = scoreboard.first_value(run.member, Metric::latency);
    if (!latency_us) continue;
    const Row& row = scoreboard.row(run.member);
    const double measured_s = latency_us->value * 1e-6;
    summary.runs.push_back(
        {row.planned.experiment.name, run.path, run.step_s, measured_s,
         summary.fit.target_s(measured_s, row.planned.experiment.config.precision, row.overheads)});
  }
  return summary;
}

/// The best few, and what the user came with.
std::vector<ToVerify> to_verify(const Scoreboard& scoreboard) {
  const std::optional<std::size_t>& baseline = scoreboard.setup().baseline;
  std::vector<ToVerify> runs;
  for (const std::size_t member :
       scoreboard.best_members(scoreboard.policy().answering.max_verified))
    runs.push_back({&scoreboard.row(member).planned.experiment, static_cast<int>(runs.size()) + 1,
                    member == baseline});
  if (baseline && std::ranges::find(runs, true, &ToVerify::is_baseline) == runs.end())
    runs.push_back({&scoreboard.row(*baseline).planned.experiment, 0, true});
  return runs;
}

std::optional<double> throughput_of(const Scoreboard& scoreboard, std::size_t member) {
  if (const auto target = scoreboard.target_time(member)) return target->throughput;
  const auto value = scoreboard.measured_value(member, Metric::throughput);
  return value ? std::optional(value->value) : std::nullopt;
}

/// The distance of an interval's ends from its middle, of the value's logarithm; nothing where it
/// has none.
std::optional<double> half_width(const std::optional<MetricValue>& value) {
  if (!value || !(value->ci_low > 0) || !std::isfinite(value->ci_high)) return std::nullopt;
  return std::log(value->ci_high / value->ci_low) / 2;
}

std::optional<BaselineStanding> baseline_of(const Scoreboard& scoreboard, std::size_t answer) {
  const auto& member = scoreboard.setup().baseline;
  if (!member) return std::nullopt;
  BaselineStanding baseline{*member, scoreboard.row(*member).planned.experiment.name,
                            scoreboard.reported_value(*member)};
  const auto before = baseline.value ? throughput_of(scoreboard, *member) : std::nullopt;
  const auto after = throughput_of(scoreboard, answer);
  if (!before || !after || !(*before > 0)) return baseline;
  const double ratio = *after / *before;
  baseline.gain = ratio - 1;
  const auto of_baseline = half_width(baseline.value);
  const auto of_answer = half_width(scoreboard.reported_value(answer));
  if (of_baseline && of_answer && *member != answer) {
    // The two were measured apart, each with an error of its own.
    const double width = std::hypot(*of_baseline, *of_answer);
    baseline.gain_low = ratio * std::exp(-width) - 1;
    baseline.gain_high = ratio * std::exp(width) - 1;
  }
  return baseline;
}

std::optional<BatchChange> batch_change_of(const Scoreboard& scoreboard, std::size_t answer) {
  const auto& today = scoreboard.setup().todays_batch;
  if (!today) return std::nullopt;
  const std::int64_t batch = batch_of(scoreboard.row(answer).planned.experiment);
  return *today == batch ? std::nullopt : std::optional(BatchChange{*today, batch});
}

/// `baseline`: a throughput, as the answer's.
TuningCost cost_of(const Scoreboard& scoreboard, std::size_t answer,
                   const std::optional<BaselineStanding>& baseline) {
  constexpr double s_per_hour = 3600;
  const ScoreboardSetup& setup = scoreboard.setup();
  TuningCost cost{
      .gpu_hours = (scoreboard.elapsed_s() * setup.num_ranks + setup.earlier_rank_s) / s_per_hour,
      .earlier_jobs = setup.earlier_jobs,
      .elapsed_s = scoreboard.elapsed_s() + setup.earlier_s};
  if (!baseline || !baseline->gain || !(*baseline->gain > 0)) return cost;
  const double after = *throughput_of(scoreboard, answer);
  const double saved_s_a_sample = (1 + *baseline->gain) / after - 1 / after;
  const auto batch = static_cast<double>(batch_of(scoreboard.row(answer).record->experiment));
  cost.earned_back_steps = std::ceil(cost.elapsed_s / saved_s_a_sample / batch);
  return cost;
}

/// Members that may be better than the answer, however little.
std::vector<Undecided> undecided_of(const Scoreboard& scoreboard, const Verdict& verdict,
                                    std::size_t answer) {
  const Policy::Answering& policy = scoreboard.policy().answering;
  constexpr double upper_end = 0.975;
  std::vector<Undecided> all;
  for (std::size_t place = 0; place < verdict.members().size() && all.size() < policy.max_undecided;
       ++place)
    if (place != answer && verdict.chance_above(place, answer) >= policy.undecided_chance)
      all.push_back({verdict.members()[place],
                     scoreboard.row(verdict.members()[place]).planned.experiment.name,
                     std::max(0.0, verdict.gain_at_most(place, answer, upper_end))});
  return all;
}

/// Deviations shrink with the root of the runs.
std::optional<double> more_time_s(const Scoreboard& scoreboard, std::size_t answer,
                                  const Undecided& other) {
  const Verdict& verdict = *scoreboard.verdict();
  const std::size_t place = *verdict.place_of(other.member);
  constexpr double upper_end = 0.975, lower_end = 0.025, deviations_of_95 = 3.92;
  constexpr double one_sided_95 = 1.645;
  const double deviation = (std::log1p(verdict.gain_at_most(place, answer, upper_end)) -
                            std::log1p(verdict.gain_at_most(place, answer, lower_end))) /
                           deviations_of_95;
  const double needed = std::log1p(scoreboard.policy().answering.relevant_gain) / one_sided_95;
  const double factor = std::pow(deviation / needed, 2);
  if (factor <= 1) return std::nullopt;
  double sum_s = 0;
  for (const std::size_t member : {other.member, verdict.members()[answer]}) {
    const Record& record = *scoreboard.row(member).record;
    const double run_s =
        std::chrono::duration<double>(record.finished_at - record.started_at).count();
    const int runs = 1 + num_final_rounds(scoreboard.row(member));
    sum_s += run_s * std::ceil(runs * (factor - 1));
  }
  return sum_s;
}

std::optional<OrderDoubt> order_doubt_of(const Scoreboard& scoreboard, std::size_t answer) {
  const auto& constants = scoreboard.setup().target;
  if (!constants || scoreboard.is_calibrated()) return std::nullopt;
  // Those far behind the answer are not faster by any errors.
  constexpr std::size_t max_members = 64;
  std::vector<std::size_t> members = scoreboard.best_members(max_members);
  std::erase(members, answer);
  members.insert(members.begin(), answer);
  std::vector<std::size_t> known;
  std::vector<CalibrationPoint> points;
  std::vector<double> leads;
  const auto best = scoreboard.finite_value(answer);
  for (const std::size_t member : members) {
    const auto value = scoreboard.finite_value(member);
    const auto latency_us = scoreboard.measured_value(member, Metric::latency);
    if (!best || !value || !(*value > 0) || !latency_us || !(latency_us->value > 0)) continue;
    const Row& row = scoreboard.row(member);
    const Precision precision = row.planned.experiment.config.precision;
    const double measured_s = latency_us->value * 1e-6;
    const double lead = std::log(*best / *value);
    known.push_back(member);
    points.push_back({measured_s, constants->time.target_s(measured_s, precision, row.overheads),
                      precision, row.overheads});
    leads.push_back(is_minimised(scoreboard.metric()) ? -lead : lead);
  }
  if (known.empty() || known.front() != answer) return std::nullopt;
  const Policy& policy = scoreboard.policy();
  const ConstantsDoubt doubt = doubt_of_constants(points, leads, policy.answering.relevant_gain,
                                                  *constants, policy.calibrating);
  return OrderDoubt{
      doubt.chance,
      doubt.likeliest == 0 ? "" : scoreboard.row(known[doubt.likeliest]).planned.experiment.name,
      doubt.chance_of_it};
}

/// The member that was passed over for the answer, which is as good. docs/inside/measuring.md has
/// the rule.
std::optional<std::string> as_good_with_more_memory(const Scoreboard& scoreboard,
                                                    std::size_t answer) {
  // Before a verdict the best is the fastest.
  const auto& verdict = scoreboard.verdict();
  const auto place = verdict ? verdict->place_of(answer) : std::nullopt;
  if (!place || *place == 0 || scoreboard.best() != answer || scoreboard.setup().baseline == answer)
    return std::nullopt;
  return scoreboard.row(verdict->members().front()).planned.experiment.name;
}

}  // namespace

Standing standing_of(const Scoreboard& scoreboard, std::size_t member) {
  const Row& row = scoreboard.row(member);
  return {&row,
          scoreboard.ranked_value(member),
          scoreboard.reported_value(member),
          verified_value(row, scoreboard.metric()),
          scoreboard.calibration() ? scoreboard.measured_value(member, scoreboard.metric())
                                   : std::nullopt,
          scoreboard.target_time(member),
          joules_of(row)};
}

std::optional<Recommendation> recommendation_of(const Scoreboard& scoreboard) {
  if (!scoreboard.answer()) return std::nullopt;
  const std::size_t member = *scoreboard.answer();
  Recommendation result;
  std::optional<Verdict> quick;
  result.metric = scoreboard.metric();
  result.member = member;
  result.standing = standing_of(scoreboard, member);
  result.is_by_engine = !scoreboard.setup().label.empty();
  const std::string& label = scoreboard.setup().label;
  result.label = !label.empty()               ? label
                 : result.standing.verified   ? "verified"
                 : scoreboard.is_calibrated() ? "calibrated"
                                              : "proxy";
  // A best-so-far answer is written before anything is judged.
  const Verdict& verdict =
      scoreboard.verdict() ? *scoreboard.verdict() : quick.emplace(scoreboard, Care::quick);
  if (const auto place = verdict.place_of(member)) {
    result.probability_best = verdict.chance_best(*place);
    result.undecided = undecided_of(scoreboard, verdict, *place);
    if (scoreboard.verdict() && !is_settled(scoreboard) && !result.undecided.empty())
      result.more_time_s = more_time_s(scoreboard, *place, result.undecided.front());
  }
  result.chance_of_better = scoreboard.chance_of_better();
  result.baseline = baseline_of(scoreboard, member);
  result.batch_change = batch_change_of(scoreboard, member);
  result.cost = cost_of(scoreboard, member, result.baseline);
  if (scoreboard.best() != member) result.ahead_here = standing_of(scoreboard, *scoreboard.best());
  result.as_good_with_more_memory = as_good_with_more_memory(scoreboard, member);
  result.final_rounds = num_final_rounds(scoreboard.row(member));
  result.calibration = calibration_of(scoreboard);
  result.constants = scoreboard.setup().target;
  // A best-so-far answer does without; DeepSpeed itself knows no errors of constants.
  if (scoreboard.verdict() && !result.standing.verified)
    result.order_doubt = order_doubt_of(scoreboard, member);
  result.model_profile = scoreboard.setup().model_profile;
  result.to_verify = to_verify(scoreboard);
  return result;
}

}  // namespace dstune
