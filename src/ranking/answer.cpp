#include "dstune/ranking/answer.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

namespace dstune {

std::string status_text(const Row& row) {
  if (row.record) return std::string(to_text(row.record->measurement.status));
  if (row.planned.status != PlanStatus::planned) return std::string(to_text(row.planned.status));
  return "not_run";
}

const std::string& reason_text(const Row& row) {
  return row.record ? row.record->measurement.reason : row.planned.reason;
}

namespace {

/// status_text() of a member whose row may be packed.
std::string status_of(const Scoreboard& scoreboard, std::size_t member) {
  if (scoreboard.has_run(member)) return status_text(scoreboard.row(member));
  const PlanStatus status = scoreboard.status(member);
  return status != PlanStatus::planned ? std::string(to_text(status)) : "not_run";
}

std::vector<StatusCount> count_statuses(const Scoreboard& scoreboard) {
  std::vector<StatusCount> counts;
  for (const Status status :
       {Status::ok, Status::raced_out, Status::out_of_memory, Status::timed_out, Status::failed})
    counts.push_back({std::string(to_text(status))});
  for (const PlanStatus status : {PlanStatus::infeasible, PlanStatus::pruned})
    counts.push_back({std::string(to_text(status))});
  counts.push_back({"not_run"});
  for (std::size_t member = 0; member < scoreboard.rows().size(); ++member)
    ++std::ranges::find(counts, status_of(scoreboard, member), &StatusCount::status)->count;
  return counts;
}

PruneCounts count_pruned(const Scoreboard& scoreboard) {
  PruneCounts counts;
  for (std::size_t member = 0; member < scoreboard.rows().size(); ++member)
    if (!scoreboard.has_run(member) && scoreboard.status(member) == PlanStatus::pruned)
      ++counts[scoreboard.prune_kind(member)];
  return counts;
}

/// In the order of the statuses, then of the first member.
std::vector<ReasonGroup> reason_groups(const Scoreboard& scoreboard,
                                       const std::vector<StatusCount>& statuses,
                                       std::size_t max_names) {
  std::vector<ReasonGroup> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> index_of;
  for (std::size_t member = 0; member < scoreboard.rows().size(); ++member) {
    const std::string status = status_of(scoreboard, member);
    if (status == to_text(Status::ok)) continue;
    const std::string reason(scoreboard.has_run(member) ? reason_text(scoreboard.row(member))
                                                        : scoreboard.reason(member));
    const auto [found, is_new] =
        index_of.try_emplace({status, without_numbers(reason)}, groups.size());
    if (is_new) groups.push_back({status, reason});
    ReasonGroup& group = groups[found->second];
    ++group.count;
    if (group.first_names.size() < max_names)
      group.first_names.push_back(scoreboard.rows().copy_of(member).planned.experiment.name);
  }
  std::ranges::stable_sort(groups, {}, [&](const ReasonGroup& group) {
    return std::ranges::find(statuses, group.status, &StatusCount::status) - statuses.begin();
  });
  return groups;
}

std::vector<TuningSpace> spaces_of(const Scoreboard& scoreboard) {
  std::vector<TuningSpace> spaces;
  TuningSpace global{"global"};
  const auto add = [&](TuningSpace& space, std::size_t member) {
    if (space.num_experiments++ == 0) space.first = member;
    if (!scoreboard.finite_value(member)) return;
    if (!space.best || scoreboard.is_better(member, *space.best)) space.best = member;
  };
  scoreboard.visit_run([&](std::size_t member, const Row& row) {
    const std::string name = "z" + std::to_string(row.record->experiment.config.zero_stage);
    auto space = std::ranges::find(spaces, name, &TuningSpace::name);
    if (space == spaces.end()) space = spaces.insert(spaces.end(), {name});
    add(*space, member);
    add(global, member);
  });
  if (global.num_experiments > 0) spaces.push_back(std::move(global));
  return spaces;
}

/// Bytes that the user's training takes: used by DeepSpeed's engine, else planned.
std::int64_t memory_bytes(const Record& record, bool is_by_engine) {
  const std::int64_t used = record.measurement.peak_memory.total_bytes;
  const std::int64_t planned = record.predicted.target_memory_bytes;
  return (is_by_engine && used > 0) || planned <= 0 ? used : planned;
}

/// The best score that was to be had with at most so much memory.
class Staircase {
 public:
  [[nodiscard]] bool has_as_good(double score, std::int64_t bytes) const {
    const auto above = steps_.upper_bound(bytes);
    return above != steps_.begin() && std::prev(above)->second >= score;
  }
  /// Something that is better than all with at most as much memory.
  void add(double score, std::int64_t bytes) {
    const auto step = steps_.insert_or_assign(bytes, score).first;
    auto next = std::next(step);
    while (next != steps_.end() && next->second <= score) next = steps_.erase(next);
  }

 private:
  std::map<std::int64_t, double> steps_;  ///< memory → score; both rise
};

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t place) { return values[place]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double shared = static_cast<double>(first + end - 1) / 2;
    for (; first < end; ++first) ranks[order[first]] = shared;
  }
  return ranks;
}

std::optional<double> measured_throughput(const Record& record) {
  const auto value = metric_value(record.measurement, Metric::throughput, record.experiment);
  return value ? std::optional(value->value) : std::nullopt;
}

}  // namespace

std::string without_numbers(const std::string& reason) {
  std::string out;
  for (const char letter : reason) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(letter)) != 0;
    if (!is_digit)
      out += letter;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

std::vector<Offer> offers_of(const Scoreboard& scoreboard) {
  const double sign = is_minimised(scoreboard.metric()) ? -1 : 1;
  std::vector<Offer> offers;
  scoreboard.visit_run([&](std::size_t member, const Row& row) {
    const auto value = scoreboard.finite_value(member);
    if (!value) return;
    offers.push_back({member, *value, row.record->experiment.shape.size(),
                      memory_bytes(*row.record, !scoreboard.setup().label.empty())});
  });
  std::stable_sort(offers.begin(), offers.end(), [&](const Offer& one, const Offer& other) {
    if (one.num_gpus != other.num_gpus) return one.num_gpus < other.num_gpus;
    return sign * one.value > sign * other.value;
  });
  // Whatever beats another stands before it where equals are put in the order of their memory.
  std::vector<Offer*> order;
  for (Offer& offer : offers) order.push_back(&offer);
  std::stable_sort(order.begin(), order.end(), [](const Offer* one, const Offer* other) {
    if (one->num_gpus != other->num_gpus || one->value != other->value) return one < other;
    return one->memory_bytes < other->memory_bytes;
  });
  Staircase so_far;
  for (Offer* const offer : order) {
    const double score = sign * offer->value;
    offer->is_on_front = !so_far.has_as_good(score, offer->memory_bytes);
    if (!offer->is_on_front) continue;
    so_far.add(score, offer->memory_bytes);
    // Like the value: in the target's time where it is ranked by that.
    if (const auto target = scoreboard.target_time(offer->member))
      offer->throughput_per_gpu = target->throughput / offer->num_gpus;
    else if (const auto value =
                 scoreboard.measured_value(offer->member, Metric::throughput_per_gpu))
      offer->throughput_per_gpu = value->value;
  }
  return offers;
}

std::optional<double> prediction_error(const Record& record) {
  if (!record.predicted.throughput) return std::nullopt;
  const auto measured = measured_throughput(record);
  return measured ? std::optional(*record.predicted.throughput / *measured - 1) : std::nullopt;
}

std::optional<double> rank_correlation(const std::vector<double>& one,
                                       const std::vector<double>& other) {
  if (one.size() < 2) return std::nullopt;
  const std::vector<double> x = ranks_of(one);
  const std::vector<double> y = ranks_of(other);
  const double mean = static_cast<double>(one.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

namespace {

std::vector<PredictedSpeed> predictions_of(const Scoreboard& scoreboard) {
  std::vector<PredictedSpeed> all;
  scoreboard.visit_run([&](std::size_t, const Row& row) {
    if (const auto error = prediction_error(*row.record))
      all.push_back({&*row.record, *measured_throughput(*row.record), *error});
  });
  std::ranges::stable_sort(all, {},
                           [](const PredictedSpeed& one) { return one.record->finished_at; });
  double sum_of_errors = 0;
  double count = 0;
  for (PredictedSpeed& one : all) {
    sum_of_errors += std::abs(one.error);
    one.mean_error_so_far = sum_of_errors / ++count;
  }
  return all;
}

std::optional<double> rank_correlation_of(const std::vector<PredictedSpeed>& predictions) {
  std::vector<double> predicted, measured;
  for (const PredictedSpeed& one : predictions) {
    predicted.push_back(*one.record->predicted.throughput);
    measured.push_back(one.measured);
  }
  return rank_correlation(predicted, measured);
}

std::vector<Finalist> finalists_of(const Scoreboard& scoreboard) {
  std::vector<Finalist> all;
  for (const std::size_t member : scoreboard.finals().finalists) {
    Finalist& one = all.emplace_back();
    one.member = member;
    one.first_run = scoreboard.first_value(member, scoreboard.metric());
    const auto place = scoreboard.verdict() ? scoreboard.verdict()->place_of(member) : std::nullopt;
    if (place) one.probability_best = scoreboard.verdict()->chance_best(*place);
  }
  return all;
}

std::optional<MachineConduct> conduct_of(const Scoreboard& scoreboard) {
  if (!scoreboard.verdict() || scoreboard.verdict()->num_runs() == 0) return std::nullopt;
  const Verdict& verdict = *scoreboard.verdict();
  return MachineConduct{verdict.num_runs(),
                        verdict.run_deviation(),
                        verdict.drift_deviation(),
                        verdict.disturbed_runs(),
                        verdict.loaded_runs(),
                        verdict.largest_load(),
                        scoreboard.step_estimate() == StepEstimate::first_quartile,
                        scoreboard.host_load()};
}

}  // namespace

namespace {

/// Makes what was never run when somebody looks at it.
class MadeStandings : public Packing<Standing> {
 public:
  explicit MadeStandings(const Scoreboard& scoreboard) : scoreboard_(&scoreboard) {}

  [[nodiscard]] std::unique_ptr<Packing> copy() const override {
    return std::make_unique<MadeStandings>(*this);
  }
  [[nodiscard]] std::size_t size() const override { return scoreboard_->rows().size(); }
  [[nodiscard]] Standing unpack(std::size_t member) const override {
    if (scoreboard_->rows().opened(member) != nullptr) return standing_of(*scoreboard_, member);
    Standing standing;
    standing.made = std::make_shared<const Row>(scoreboard_->rows().copy_of(member));
    standing.row = standing.made.get();
    return standing;
  }
  void pack(std::size_t /*member*/, const Standing& /*standing*/) override {}

 private:
  const Scoreboard* scoreboard_;
};

}  // namespace

Answer answer_of(const Scoreboard& scoreboard) {
  Answer answer;
  answer.metric = scoreboard.metric();
  answer.source = scoreboard.setup().source;
  answer.model_profile = scoreboard.setup().model_profile;
  answer.model_name = scoreboard.setup().model_name;
  answer.searched = scoreboard.setup().searched;
  answer.standings = PackedList<Standing>(std::make_unique<MadeStandings>(scoreboard));
  scoreboard.rows().visit_open([&](std::size_t member, const Row&) {
    static_cast<void>(answer.standings[member]);  // what was run stays at hand
  });
  answer.recommendation = recommendation_of(scoreboard);
  answer.best = scoreboard.best();
  answer.finals_are_done = scoreboard.finals().is_done;
  answer.no_finals_reason = scoreboard.finals().reason;
  answer.finalists = finalists_of(scoreboard);
  answer.spread_of_finals = scoreboard.spread_of_finals();
  answer.spread_in_search = scoreboard.spread_in_search();
  answer.machine = conduct_of(scoreboard);
  answer.spaces = spaces_of(scoreboard);
  answer.offers = offers_of(scoreboard);
  answer.counts = count_statuses(scoreboard);
  answer.pruned = count_pruned(scoreboard);
  answer.reasons =
      reason_groups(scoreboard, answer.counts, scoreboard.policy().answering.max_names_of_reason);
  answer.slow_hosts = slow_hosts(scoreboard.rows(), scoreboard.policy().flags);
  answer.flags = count_flags(scoreboard.rows(), scoreboard.policy());
  answer.predictions = predictions_of(scoreboard);
  answer.rank_correlation = rank_correlation_of(answer.predictions);
  answer.elapsed_s = scoreboard.elapsed_s();
  return answer;
}

}  // namespace dstune
