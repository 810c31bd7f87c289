#include "control/job_search.hpp"

#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "dstune/core/log_text.hpp"
#include "dstune/device/host_load.hpp"
#include "dstune/search/verifying.hpp"

namespace dstune {
namespace {

/// "with the built-in step": who runs the experiments, in words.
std::string search_name(const Instrument& instrument) {
  const InstrumentTraits traits = instrument.traits();
  if (traits.runs_plan) return "with the built-in step";
  return (traits.loads_pytorch ? "in " : "with ") + std::string(traits.source);
}

/// Steps of others are measured, but do not stay built.
std::string finals_note(const InstrumentTraits& traits) {
  return traits.repeats && !traits.runs_plan ? log_text::finalists_of_others_are_rebuilt : "";
}

std::optional<HostLoad> host_load_since(const std::optional<HostTimes>& before) {
  const auto now = host_times();
  const auto load = load_average();
  if (!before || !now || !load || !(now->all_s > before->all_s)) return std::nullopt;
  return HostLoad{(now->stolen_s - before->stolen_s) / (now->all_s - before->all_s), *load,
                  static_cast<int>(std::thread::hardware_concurrency())};
}

/// Tells whether our own step forecasts what another instrument decides.
bool is_forecast(const OpenJob& job) {
  return job.job.has_own_step() && job.job.is_by_engine();
}

/// Finalists of our own step may take what any member may.
std::optional<RankBytes> bytes_of_built(const OpenJob& job) {
  if (!job.deciding().traits().runs_plan) return std::nullopt;
  return RankBytes{job.device_memory_bytes, job.host_memory_bytes.value_or(0)};
}

/// Predicts what our own step would take for each member.
std::vector<ForecastMember> forecast_members(const PlannedSpace& space, JobPredictor& predictor) {
  std::vector<ForecastMember> members;
  for (const auto& [planned, chain, is_below] : space.members) {
    ForecastMember& member = members.emplace_back();
    if (planned.status != PlanStatus::planned) continue;
    const Experiment& experiment = planned.experiment;
    member.step_s = predictor.step_s(experiment);
    member.batch = static_cast<double>(batch_of(experiment));
    member.precision = experiment.config.precision;
    member.overheads = predictor.overheads(experiment);
  }
  return members;
}

/// Returns what is believed of the engine's figures. It follows from these members' runs there,
/// from the user's runs outside of this job, and, for memory, from the plan. The scoreboard
/// predicts with it from now on.
std::vector<MemberBelief> beliefs_of(const SearchParts& parts, Scoreboard& scoreboard,
                                     const std::vector<std::size_t>& ran) {
  const OpenJob& job = parts.job;
  const std::vector<ForecastMember> members = forecast_members(job.space, *parts.predictor);
  std::vector<EngineRun> runs;
  for (const std::size_t member : ran)
    if (const std::optional<Record>& record = scoreboard.row(member).record)
      runs.emplace_back(member, mean_step_s(record->measurement));
  for (const UserRun& run : job.user_runs) runs.emplace_back(run.member, run.step_s);
  for (std::size_t member = 0; member < members.size(); ++member)
    if (const auto known = job.history.verified.find(job.own_keys()[member]);
        known != job.history.verified.end())
      runs.emplace_back(member, mean_step_s(known->second));
  std::vector<MemberBelief> beliefs = believed_in_engine(members, runs, job.target);
  for (std::size_t member = 0; member < beliefs.size(); ++member) {
    MemberBelief& belief = beliefs[member];
    Prediction prediction = job.space.members.copy_of(member).planned.predicted;
    prediction.throughput = belief.prediction.throughput;
    prediction.target_throughput.reset();
    belief.prediction = std::move(prediction);
    scoreboard.predict(member, belief.prediction);
  }
  return beliefs;
}

std::unique_ptr<Tuner> tuner_of(const SearchParts& parts, Scoreboard& scoreboard) {
  const OpenJob& job = parts.job;
  if (!is_forecast(job)) return make_tuner(job.job.tuning.tuner_type, job.space, job.job.tuning);
  return make_verifying_tuner(job.space, job.job.tuning, [&](const std::vector<std::size_t>& ran) {
    return beliefs_of(parts, scoreboard, ran);
  });
}

RunAgainPolicy::Options run_again_options(const OpenJob& job) {
  const InstrumentTraits traits = job.deciding().traits();
  const bool stops_losers = races(job.job, traits);
  return {.races = stops_losers,
          .repeats_best = stops_losers || traits.repeats,
          .has_controls = stops_losers && !traits.loads_pytorch,
          .is_alone_in_space = job.space.planned <= 1,
          .is_complete = job.is_search_complete,
          .rounds = is_forecast(job) ? final_rounds_beside() : FinalRounds{},
          .deaths = deaths_in_repeats(job.keys, job.history)};
}

std::set<int> ranks_beside_first(const Topology& topology) {
  const auto node = static_cast<std::size_t>(topology.node_of_rank.front());
  const std::vector<int>& ranks = topology.ranks_of_node[node];
  return {ranks.begin(), ranks.end()};
}

JobPolicy policy_of(const SearchParts& parts) {
  const OpenJob& job = parts.job;
  return {.began = parts.options.began,
          .instrument = job.instruments->size() - 1,
          .search_name = search_name(job.deciding()),
          .finals_note = finals_note(job.deciding().traits()),
          .input = [&job](const Experiment& one) { return job.deciding().input(job.job, one); },
          .limits = [&parts](const PlannedExperiment& one) { return parts.limits.of(one); },
          .end = parts.end,
          .ranks_here = ranks_beside_first(parts.topology),
          .host_load = [before = host_times()] { return host_load_since(before); }};
}

/// Whoever hears of experiments. Predictions of our own step learn from its runs alone.
Listeners listeners_of(const SearchParts& parts, Publisher& publisher) {
  Listeners listeners{
      .journal = *parts.job.journal, .publisher = publisher, .progress = parts.progress};
  if (is_forecast(parts.job)) return listeners;
  listeners.times = parts.predictor;
  listeners.memory = &parts.memory;
  if (parts.predictor != nullptr)
    listeners.overheads = [&parts](const Experiment& one) {
      return parts.predictor->overheads(one);
    };
  return listeners;
}

}  // namespace

Scoreboard scoreboard_of(const OpenJob& job) {
  const InstrumentTraits traits = job.deciding().traits();
  ScoreboardSetup setup{.metric = job.job.tuning.metric,
                        .baseline = job.space.baseline,
                        .todays_batch = todays_batch(job),
                        .num_ranks = num_ranks(job.training_ranks),
                        .label = traits.label,
                        .source = std::string(traits.source),
                        .model_profile = profile_of_model(job.job, job.space),
                        .model_name = job.job.is_model_known ? job.job.model.name : "",
                        .searched = job.space.searched,
                        .are_steps_alike = traits.alike_steps};
  // An engine measures the target's time already.
  if (!is_forecast(job)) {
    setup.user_runs = job.user_runs;
    setup.memory_offset_bytes = job.memory_offset_bytes;
    setup.target = job.target;
  }
  return known_scoreboard(job.space, job.keys, job.history, std::move(setup));
}

SearchResult search(const SearchParts& parts, Scoreboard& scoreboard) {
  const OpenJob& job = parts.job;
  const InstrumentTraits traits = job.deciding().traits();
  job.results->set_instrument(std::string(traits.name), is_forecast(job));
  const auto tuner = tuner_of(parts, scoreboard);
  RunAgainPolicy run_again(scoreboard, run_again_options(job));
  Publisher publisher(*job.results, scoreboard,
                      {.began = parts.options.began,
                       .training_command = job.job.training_command,
                       .memory_timeline = [&](const Experiment& experiment) {
                         return memory_timeline_of(job, experiment);
                       }});
  // Rank 0 holds the journal: it should not share its process with the user's code.
  parts.slots.spare(traits.takes_any_key ? std::optional(0) : std::nullopt);
  Controller controller({.space = job.space,
                         .keys = job.keys,
                         .history = job.history,
                         .scoreboard = scoreboard,
                         .run_again = run_again,
                         .tuner = *tuner,
                         .slots = parts.slots,
                         .races = races(job.job, traits),
                         .is_complete = job.is_search_complete,
                         .built_bytes = bytes_of_built(job)},
                        policy_of(parts), parts.driver, listeners_of(parts, publisher));
  const ExitCode code = controller.run();
  return {{code, controller.reason(), controller.can_finalize()}, publisher.answer()};
}

}  // namespace dstune
