#include "simulated_search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>

#include "dstune/core/interval.hpp"
#include "dstune/core/policy_changes.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune::bench {
namespace {

/// What is better by less is not worth finding.
const double relevant_gain = default_policy().answering.relevant_gain;

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

/// Only timed steps, and of these a share: those of a member that was built and warm.
void keep_share(double share, Measurement& run) {
  std::vector<double> timed_s = timed_steps_s(run);
  const auto steps = static_cast<std::size_t>(share * static_cast<double>(timed_s.size()));
  timed_s.resize(
      std::min(timed_s.size(), std::max(default_policy().measuring.min_timed_steps, steps)));
  run.step_times_s = std::move(timed_s);
  run.warmup_steps = 0;
}

double sum_of_first(std::size_t count, const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
}

/// Ends a trial at the look at which it has lost.
void race(const IncumbentEstimate& incumbent, bool is_early, Measurement& trial) {
  const auto first = static_cast<std::size_t>(trial.warmup_steps);
  const std::vector<double> all = timed_steps_s(trial);
  for (std::size_t look = 1; look < all.size(); ++look) {
    if (!is_race_look(look) && !(is_early && is_early_race_look(look))) continue;
    const std::vector<double> so_far(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(look));
    if (!has_lost_race(so_far, incumbent) && !(is_early && has_lost_race_early(so_far, incumbent)))
      continue;
    trial.step_times_s.resize(first + look);
    trial.status = Status::raced_out;
    return;
  }
}

class Simulation {
 private:
  using Clock = std::chrono::steady_clock;

  template <class Work>
  auto timed(const Work& work) {
    const auto began = Clock::now();
    auto result = work();
    spent_ += Clock::now() - began;
    return result;
  }

 public:
  Simulation(const SimulatedSpace& simulated, const SimulationOptions& options, std::int64_t seed)
      : simulated_(simulated),
        options_(options),
        random_(static_cast<std::uint64_t>(seed) + 1),
        scoreboard_({.metric = Metric::throughput,
                     .baseline = simulated.space.baseline,
                     .are_steps_alike = !options.has_means},
                    rows_of(simulated.space)),
        run_again_(scoreboard_, {.races = options.races,
                                 .has_controls = options.has_controls,
                                 .rounds = options.final_rounds}),
        has_run_(simulated.truth.size()) {
    TuningOptions tuning = simulated.tuning;
    tuning.tuner_type = options.tuner;
    tuning.seed = seed;
    tuner_ = timed([&] {
      return options.make_tuner ? options.make_tuner(tuning, scoreboard_)
                                : make_tuner(options.tuner, simulated.space, tuning);
    });
  }

  SimulatedSearch run() {
    for (;;) {
      if (running_.empty() && !tuner_->is_done())
        if (const auto control = run_again_.during_search(HUGE_VAL)) {
          const double before_s = result_.undisturbed_s;
          run_round({*control});
          result_.controls_s += result_.undisturbed_s - before_s;
        }
      while (running_.size() < options_.num_slots && begin_next()) {
      }
      if (running_.empty()) break;
      end_first();
    }
    if (options_.has_finals)
      run_finals();
    else
      scoreboard_.judge();
    result_.seconds = now_s_;
    result_.tuner_s = std::chrono::duration<double>(spent_).count();
    if (const auto answer = scoreboard_.answer()) {
      result_.answer = *answer;
      result_.regret = 1 - truth(*answer) / simulated_.best_truth();
      double most = 0;
      for (std::size_t member = 0; member < has_run_.size(); ++member)
        if (has_run_[member]) most = std::max(most, truth(member));
      const auto place = scoreboard_.verdict()->place_of(*answer);
      if (place)
        result_.is_best =
            Belief{scoreboard_.verdict()->chance_best(*place), truth(*answer) >= most};
      if (place) note_ratios(*place);
    } else {
      result_.regret = 1;
    }
    return std::move(result_);
  }

 private:
  struct Running {
    double began_at_s = 0;
    std::size_t member = 0;
    Measurement trial{};
    double ends_at_s = 0;
  };

  static std::chrono::system_clock::time_point at(double simulated_s) {
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(
            std::chrono::duration<double>(simulated_s)));
  }

  static std::vector<Row> rows_of(const PlannedSpace& space) {
    std::vector<Row> rows;
    for (const PlannedMember& member : space.members) rows.push_back({member.planned});
    return rows;
  }
  [[nodiscard]] double truth(std::size_t member) const { return simulated_.truth[member]; }

  bool begin_next() {
    const auto member = timed([&] { return tuner_->next(); });
    if (!member) return false;
    Running next{now_s_, *member, simulated_.run(*member, slower_by(now_s_), random_)};
    const std::vector<double> undisturbed_s = next.trial.step_times_s;
    lengthen(now_s_ + options_.build_s, next.trial.step_times_s);
    if (options_.races && scoreboard_.best())
      race(incumbent_estimate(scoreboard_, scoreboard_.row(*member).planned.experiment, {}),
           options_.races_early, next.trial);
    next.ends_at_s = now_s_ + options_.build_s + sum(next.trial.step_times_s);
    result_.undisturbed_s +=
        options_.build_s + sum_of_first(next.trial.step_times_s.size(), undisturbed_s);
    has_run_[*member] = true;
    ++result_.experiments;
    result_.stopped += next.trial.status == Status::raced_out ? 1 : 0;
    result_.steps += next.trial.step_times_s.size();
    running_.push_back(std::move(next));
    return true;
  }

  void end_first() {
    const auto first = std::ranges::min_element(running_, {}, &Running::ends_at_s);
    const Running ended = std::move(*first);
    running_.erase(first);
    now_s_ = ended.ends_at_s;
    Record record;
    record.experiment = scoreboard_.row(ended.member).planned.experiment;
    record.measurement = ended.trial;
    record.predicted = scoreboard_.row(ended.member).planned.predicted;
    record.is_alone = options_.num_slots == 1;
    record.started_at = at(ended.began_at_s);
    record.finished_at = at(now_s_);
    const std::uint64_t revision = scoreboard_.value_revision();
    scoreboard_.record(ended.member, std::move(record));
    timed([&] {
      if (scoreboard_.value_revision() != revision) revise_all_but(ended.member);
      tuner_->observe(ended.member, observation_of(ended.member));
      return 0;
    });
    const auto chance = timed([&] { return tuner_->chance_of_better(); });
    if (!chance || !scoreboard_.best()) return;
    double most = 0;
    for (std::size_t member = 0; member < has_run_.size(); ++member)
      if (!has_run_[member]) most = std::max(most, truth(member));
    result_.better_elsewhere.push_back(
        {*chance, most > (1 + relevant_gain) * truth(*scoreboard_.best())});
  }

  [[nodiscard]] Observation observation_of(std::size_t member) const {
    return {scoreboard_.row(member).record->measurement.status, scoreboard_.observed_value(member)};
  }

  [[nodiscard]] double slower_by(double now_s) {
    return simulated_.disturbance ? simulated_.disturbance(now_s, random_) : 0;
  }

  [[nodiscard]] double loaded_s(double step_s, double now_s) const {
    return simulated_.load ? step_s * std::exp(simulated_.load(now_s)) : step_s;
  }

  /// Steps that begin at a moment, one after the other. Returns when they end.
  double lengthen(double now_s, std::vector<double>& steps_s) const {
    for (double& step_s : steps_s) now_s += step_s = loaded_s(step_s, now_s);
    return now_s;
  }

  /// The steps of several runs, a turn of each after the other. Returns when they end.
  [[nodiscard]] double lengthen_in_turns(double now_s, std::vector<Repeat>& repeats) const {
    std::vector<std::size_t> done(repeats.size());
    for (bool is_left = true; is_left;) {
      is_left = false;
      for (std::size_t run = 0; run < repeats.size(); ++run) {
        std::vector<double>& steps_s = repeats[run].measurement.step_times_s;
        const double until_s = now_s + default_policy().repeating.turn_s;
        while (done[run] < steps_s.size() && now_s < until_s) {
          double& step_s = steps_s[done[run]++];
          now_s += step_s = loaded_s(step_s, now_s);
        }
        is_left |= done[run] < steps_s.size();
      }
    }
    return now_s;
  }

  void run_finals() {
    const double began_s = now_s_;
    for (;;) {
      std::vector<RunAgain> round;
      if (options_.keeps_finalists)
        round = run_again_.next_round(HUGE_VAL);
      else if (auto next = run_again_.after_search(HUGE_VAL))
        round.push_back(std::move(*next));
      if (round.empty()) break;
      run_round(round);
    }
    result_.finals_s = now_s_ - began_s;
  }

  /// Of the members that were compared most: others have no place in the answer.
  void note_ratios(std::size_t answer) {
    const Verdict& verdict = *scoreboard_.verdict();
    const std::size_t answers_member = verdict.members()[answer];
    for (const std::size_t member : scoreboard_.finals().finalists) {
      const auto place = verdict.place_of(member);
      if (!place || *place == answer) continue;
      const double ratio = truth(member) / truth(answers_member) - 1;
      ++result_.ratios_stated;
      result_.ratios_held += ratio >= verdict.gain_at_most(*place, answer, 0.025) &&
                             ratio <= verdict.gain_at_most(*place, answer, 0.975);
    }
  }

  /// All of it in turns, or the only one.
  void run_round(const std::vector<RunAgain>& round) {
    if (!round.front().kind) return run_in_place(round.front().member);
    const bool is_in_turns =
        options_.keeps_finalists && round.front().kind == RepeatKind::final_round;
    const double slower = slower_by(now_s_);
    const double began_s = now_s_;
    std::vector<Repeat> repeats;
    for (const RunAgain& next : round) {
      Repeat& repeat = repeats.emplace_back();
      repeat.kind = *next.kind;
      repeat.round = next.round;
      repeat.measurement = simulated_.run(next.member, slower, random_);
      repeat.is_alone = true;
      std::vector<double>& steps_s = repeat.measurement.step_times_s;
      if (!is_in_turns || is_built_.insert(next.member).second) {
        std::vector<double> warmup(steps_s.begin(),
                                   steps_s.begin() + repeat.measurement.warmup_steps);
        result_.undisturbed_s += options_.build_s + sum(warmup);
        now_s_ = lengthen(now_s_ + options_.build_s, warmup);
        result_.steps += warmup.size();
      }
      keep_share(next.slice_share, repeat.measurement);
      result_.undisturbed_s += sum(steps_s);
      result_.steps += steps_s.size();
      ++result_.runs_again;
      if (!is_in_turns) now_s_ = lengthen(now_s_, steps_s);
    }
    if (is_in_turns) now_s_ = lengthen_in_turns(now_s_, repeats);
    for (std::size_t run = 0; run < round.size(); ++run) {
      repeats[run].started_at = at(began_s);
      repeats[run].finished_at = at(now_s_);
      const std::uint64_t revision = scoreboard_.value_revision();
      scoreboard_.repeat(round[run].member, std::move(repeats[run]));
      if (scoreboard_.value_revision() != revision) revise_all_but(std::nullopt);
    }
  }

  /// Once more, and not raced: the run takes the place of the first one.
  void run_in_place(std::size_t member) {
    Record record = *scoreboard_.row(member).record;
    record.measurement = simulated_.run(member, slower_by(now_s_), random_);
    std::vector<double>& steps_s = record.measurement.step_times_s;
    record.is_alone = true;
    record.started_at = at(now_s_);
    result_.undisturbed_s += options_.build_s + sum(steps_s);
    result_.steps += steps_s.size();
    ++result_.runs_again;
    now_s_ = lengthen(now_s_ + options_.build_s, steps_s);
    record.finished_at = at(now_s_);
    scoreboard_.record(member, std::move(record));
  }

  void revise_all_but(std::optional<std::size_t> member) {
    for (std::size_t other = 0; other < has_run_.size(); ++other)
      if (other != member && scoreboard_.row(other).record)
        tuner_->revise(other, observation_of(other));
  }

  const SimulatedSpace& simulated_;
  SimulationOptions options_;
  std::mt19937_64 random_;
  Scoreboard scoreboard_;
  RunAgainPolicy run_again_;
  std::vector<bool> has_run_;
  std::set<std::size_t> is_built_;  ///< finalists
  Clock::duration spent_{};
  std::unique_ptr<Tuner> tuner_;
  std::vector<Running> running_;
  double now_s_ = 0;
  SimulatedSearch result_;
};

}  // namespace

ComingLoad::ComingLoad(const Options& options)
    : options_(options), random_(options.seed), is_there_at_first_(random_() % 2 == 0) {}

double ComingLoad::at(double now_s) {
  std::uniform_real_distribution<double> share(0, 1);
  while (changes_s_.empty() || changes_s_.back() <= now_s) {
    const double length_s =
        options_.shortest_s * std::pow(options_.longest_s / options_.shortest_s, share(random_));
    // Nobody knows how long it has been there when the job begins.
    changes_s_.push_back(changes_s_.empty() ? share(random_) * length_s
                                            : changes_s_.back() + length_s);
  }
  const auto passed = std::ranges::upper_bound(changes_s_, now_s) - changes_s_.begin();
  return is_there_at_first_ == (passed % 2 == 0) ? std::log(options_.factor) : 0;
}

void change_policy_by(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos ||
      !change_policy(text.substr(0, equals), std::stod(text.substr(equals + 1))))
    throw std::runtime_error("--policy takes GROUP.NAME=FACTOR of environment.json: " + text);
}

double SimulatedSpace::best_truth() const {
  return *std::ranges::max_element(truth);
}

SimulatedSearch simulate(const SimulatedSpace& simulated, const SimulationOptions& options,
                         std::int64_t seed) {
  return Simulation(simulated, options, seed).run();
}

}  // namespace dstune::bench
