#include "control/instruments.hpp"

#include <cmath>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/device/host_load.hpp"
#include "dstune/ranking/verdict.hpp"
#include "dstune/search/verifying.hpp"

namespace dstune {
namespace {

Progress::Style progress_style(const JobOptions& options) {
  if (options.quiet || options.no_progress) return Progress::Style::silent;
  return isatty(STDERR_FILENO) != 0 ? Progress::Style::terminal : Progress::Style::lines;
}

/// Challengers are stopped where they have lost to the best so far. What a plug-in counts as
/// operations need not grow with the samples.
bool races(const JobSpec& job, const WorkloadSpec& workload) {
  return job.tuning.tuner_type == "race" &&
         !(workload.takes_any_key() && job.tuning.metric == Metric::flops);
}

std::optional<HostLoad> host_load_since(const std::optional<HostTimes>& before) {
  const auto now = host_times();
  const auto load = load_average();
  if (!before || !now || !load || !(now->all_s > before->all_s)) return std::nullopt;
  return HostLoad{(now->stolen_s - before->stolen_s) / (now->all_s - before->all_s), *load,
                  static_cast<int>(std::thread::hardware_concurrency())};
}

/// Times that are given do not differ between runs.
bool repeats_best(const JobSpec& job, const WorkloadSpec& workload) {
  return races(job, workload) || workload.kind == WorkloadKind::transformer ||
         workload.takes_any_key();
}

/// Of metrics.json.
std::string instrument_of(const WorkloadSpec& workload) {
  switch (workload.kind) {
    case WorkloadKind::transformer:
      return "step";
    case WorkloadKind::deepspeed:
      return "engine";
    default:
      return std::string(to_text(workload.kind));
  }
}

/// How far predictions of our own step are off before anything was measured, and as so many runs
/// (docs/performance.md, "Predicted times").
constexpr double predicted_error = 0.04;
constexpr double prior_predictions = 4;

/// How far what was predicted of each before it ran was from what was measured; relative.
double error_of_predictions(const Scoreboard& board) {
  double squares = prior_predictions * predicted_error * predicted_error;
  double count = prior_predictions;
  for (const Row& row : board.rows()) {
    if (!row.record || !row.record->predicted.throughput) continue;
    const auto measured =
        value_so_far(row.record->measurement, Metric::throughput, row.record->experiment);
    if (!measured || !(measured->value > 0)) continue;
    squares += std::pow(std::log(measured->value / *row.record->predicted.throughput), 2);
    ++count;
  }
  return std::sqrt(squares / count);
}

std::size_t num_runs(const Scoreboard& board) {
  std::size_t count = 0;
  for (const Row& row : board.rows()) count += (row.record ? 1 : 0) + row.repeats.size();
  return count;
}

/// How far a run of the board is from its member's mean; relative.
double error_of_runs(const Scoreboard& board) {
  const Verdict verdict(board, Care::quick);
  return std::hypot(verdict.run_deviation(), verdict.drift_deviation());
}

OwnErrors own_errors_of(const Scoreboard& screened) {
  return own_errors(error_of_predictions(screened), error_of_runs(screened));
}

/// What our own step says of each member, by what is predicted and what was measured.
std::vector<ScreenedMember> screened_members(const PlannedSpace& space, const Scoreboard& screened,
                                             JobPredictor& predictor) {
  const OwnErrors errors = own_errors_of(screened);
  std::vector<ScreenedMember> members;
  for (std::size_t row = 0; row < space.members.size(); ++row) {
    const PlannedExperiment& planned = space.members[row].planned;
    ScreenedMember& member = members.emplace_back();
    if (planned.status != PlanStatus::planned) continue;
    const Experiment& experiment = planned.experiment;
    const std::optional<Record>& record = screened.row(row).record;
    const auto latency_us =
        record ? value_so_far(record->measurement, Metric::latency, experiment) : std::nullopt;
    member.step_s = predictor.step_s(experiment);
    if (latency_us && latency_us->value > 0) {
      const double measured_s = latency_us->value * 1e-6;
      member.step_s = member.step_s ? step_by_both(measured_s, *member.step_s, errors) : measured_s;
    }
    member.batch = static_cast<double>(global_batch(experiment.config, experiment.shape.size()));
    member.precision = experiment.config.precision;
    member.overheads = predictor.overheads(experiment);
  }
  return members;
}

/// Of the engine's figures, by these members' runs there; of memory what was planned. The board
/// predicts with them from now on.
std::vector<MemberBelief> beliefs_of(const SearchParts& parts, const Scoreboard& screened,
                                     Scoreboard& verified, const std::vector<std::size_t>& ran) {
  const Preparation& ready = parts.ready;
  const std::vector<ScreenedMember> members =
      screened_members(ready.space, screened, *parts.predictor);
  std::vector<EngineRun> runs;
  for (const std::size_t row : ran)
    if (const std::optional<Record>& record = verified.row(row).record)
      runs.emplace_back(row, mean_step_s(record->measurement));
  // What the user has run outside of this job says as much.
  for (const UserRun& run : ready.user_runs) runs.emplace_back(run.row, run.step_s);
  for (std::size_t row = 0; row < members.size(); ++row)
    if (const auto known = ready.history.verified.find(ready.keys[row]);
        known != ready.history.verified.end())
      runs.emplace_back(row, mean_step_s(known->second));
  std::vector<MemberBelief> beliefs = believed_in_engine(members, runs, ready.target);
  for (std::size_t row = 0; row < beliefs.size(); ++row) {
    MemberBelief& belief = beliefs[row];
    Prediction prediction = ready.space.members[row].planned.predicted;
    prediction.throughput = belief.prediction.throughput;
    prediction.target_throughput.reset();
    belief.prediction = std::move(prediction);
    verified.predict(row, belief.prediction);
  }
  return beliefs;
}

/// What the runs of a board took on average, with building and ending; nothing where none ran.
std::optional<double> price_of(const Scoreboard& board) {
  double sum_s = 0;
  int count = 0;
  for (const Row& row : board.rows()) {
    if (!row.record) continue;
    sum_s += seconds(row.record->finished_at - row.record->started_at);
    ++count;
  }
  return count > 0 ? std::optional(sum_s / count) : std::nullopt;
}

}  // namespace

std::string label_of(const WorkloadSpec& workload) {
  if (workload.kind != WorkloadKind::deepspeed) return "";
  return workload.options.contains("script") ? "verified" : "engine";
}

SearchResult run_instrument(const SearchParts& parts, const InstrumentSearch& instrument,
                            Scoreboard& board, Tuner& tuner) {
  Preparation& ready = parts.ready;
  const WorkloadSpec& workload = instrument.workload;
  const bool in_engine = workload.kind == WorkloadKind::deepspeed;
  ready.results->set_instrument(instrument_of(workload), instrument.is_beside);
  RunAgainPolicy run_again(board,
                           {.races = races(ready.job, workload),
                            .repeats_best = repeats_best(ready.job, workload),
                            .is_alone_in_space = ready.space.planned <= 1,
                            .is_complete = instrument.is_complete,
                            .is_screening = instrument.is_screening,
                            .goes_on = instrument.goes_on,
                            .rounds = instrument.is_beside ? final_rounds_beside() : FinalRounds{},
                            .deaths = deaths_in_repeats(instrument.keys, ready.history)});
  Publisher publisher(*ready.results, board,
                      {.training_command = ready.job.training_command,
                       .memory_timeline = [&](const Experiment& experiment) {
                         return memory_timeline_of(ready, experiment);
                       }});
  Progress progress(progress_style(parts.options));
  JobPolicy policy{.began = parts.options.began,
                   .sends_ds_config = workload.takes_any_key(),
                   .in_engine = in_engine};
  if (in_engine)
    policy.arguments = [&](const Experiment& one) { return script_arguments(ready.job, one); };
  TrialLimits limits = parts.limits;
  limits.in_engine = in_engine;
  if (in_engine) limits.predictor = nullptr;
  policy.limits = [&limits](const PlannedExperiment& planned) { return limits.of(planned); };
  policy.end = parts.end;
  policy.host_load = [times_before = host_times()] { return host_load_since(times_before); };
  Listeners listeners{.journal = *ready.journal, .publisher = publisher, .progress = progress};
  if (!instrument.is_beside) {
    listeners.times = parts.predictor;
    listeners.memory = &parts.memory;
  }
  if (listeners.times != nullptr) {
    listeners.overheads = [&](const Experiment& experiment) {
      return parts.predictor->overheads(experiment);
    };
  }
  // Rank 0 holds the journal: it should not share its process with the user's code.
  const bool runs_users_code =
      workload.kind == WorkloadKind::deepspeed || workload.kind == WorkloadKind::plugin;
  parts.slots.spare(runs_users_code ? std::optional(0) : std::nullopt);
  const Search search{.space = ready.space,
                      .keys = instrument.keys,
                      .history = ready.history,
                      .board = board,
                      .run_again = run_again,
                      .tuner = tuner,
                      .slots = parts.slots,
                      .races = races(ready.job, workload),
                      .is_complete = instrument.is_complete};
  Controller controller(search, std::move(policy), parts.driver, std::move(listeners));
  const ExitCode code = controller.run();
  return {{code, controller.reason(), controller.can_finalize()}, publisher.answer()};
}

SearchResult search_with_both(const SearchParts& parts, std::unique_ptr<Tuner> own,
                              Scoreboard& screened, Scoreboard& verified) {
  Preparation& ready = parts.ready;
  const auto tuner =
      make_verifying_tuner(ready.space, ready.job.tuning,
                           beliefs_about(ready.target, [&](const std::vector<std::size_t>& ran) {
                             return beliefs_of(parts, screened, verified, ran);
                           }));
  InstrumentSearch in_engine{.workload = *ready.job.verify,
                             .keys = ready.verify_keys,
                             .is_beside = true,
                             .goes_on = true,
                             .is_complete = ready.is_search_complete};
  const auto goes_on = [](const SearchResult& result) {
    // What does not run in one of them may run in the other.
    return result.end.code == ExitCode::ok || result.end.code == ExitCode::nothing_feasible;
  };
  bool can_finalize = true;
  const auto with_engine = [&] {
    SearchResult result = run_instrument(parts, in_engine, verified, *tuner);
    result.end.can_finalize &= can_finalize;
    can_finalize = result.end.can_finalize;
    return result;
  };

  log::info("DeepSpeed's engine runs the baseline and what differs most from it");
  tuner->pause_after_first();
  if (const SearchResult result = with_engine(); !goes_on(result)) return result;
  // Asked for again and again while ranks are busy.
  std::optional<InstrumentPrices> known;
  std::size_t runs_of_known = 0;
  const auto prices = [&] {
    const std::size_t runs = num_runs(screened) + num_runs(verified);
    if (std::exchange(runs_of_known, runs) == runs) return known;
    known.reset();
    const auto own_s = price_of(screened);
    const auto engine_s = price_of(verified);
    if (!own_s || !engine_s) return known;
    const OwnErrors errors = own_errors_of(screened);
    known = {*own_s,         *engine_s,     errors.of_prediction,
             tuner->error(), errors.of_run, error_of_runs(verified)};
    return known;
  };
  log::info("our own step runs as long as it tells more for its time");
  const auto screening = make_screening_tuner(std::move(own), prices);
  const SearchResult of_own = run_instrument(parts,
                                             {.workload = ready.job.workload,
                                              .keys = ready.keys,
                                              .is_screening = true,
                                              .is_complete = ready.is_screening_complete},
                                             screened, *screening);
  can_finalize &= of_own.end.can_finalize;
  if (goes_on(of_own) && !ready.is_screening_complete)
    ready.journal->add(event::search_finished(ready.screening_key));
  for (std::size_t row = 0; row < verified.rows().size(); ++row)
    if (const auto& record = screened.row(row).record) verified.screen(row, record->measurement);
  if (const auto paid = prices())
    log::info(
        fmt::format("DeepSpeed's engine goes on: a run takes {:.2g} s there and {:.2g} s in our "
                    "own step, whose "
                    "predictions are off by {:.1f} %, and by {:.1f} % of the engine",
                    paid->engine_s, paid->own_s, 100 * paid->own_error, 100 * paid->engine_error));
  tuner->go_on();
  in_engine.goes_on = false;
  // Where the job is to stop, this says what is known.
  return with_engine();
}

Scoreboard verified_scoreboard(const Preparation& ready) {
  return known_scoreboard(ready.space, ready.verify_keys, ready.history,
                          {.metric = ready.job.tuning.metric,
                           .baseline_row = ready.space.baseline,
                           .todays_batch = todays_batch(ready),
                           .num_ranks = num_ranks(ready.training_ranks),
                           .label = label_of(*ready.job.verify)});
}

}  // namespace dstune
