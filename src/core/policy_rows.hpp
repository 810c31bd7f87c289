#pragma once
/// The rows of the policy: each group with its source, each value with its unit and reason. A row
/// is `row(name, value, unit, reason)`, and `row.begin(name, source)` begins a group. A reason that
/// begins with "by hand" says what the value does: docs/inside/search.md, Choices by hand, tells
/// how to see what another one changes.

#include "dstune/core/policy.hpp"

namespace dstune::policy_rows {

/// A share is of 1, a logarithm of a ratio close to one.
namespace unit {
inline constexpr const char* share = "share";
inline constexpr const char* ratio = "ratio";
inline constexpr const char* chance = "chance";
inline constexpr const char* logarithm = "logarithm of a ratio";
inline constexpr const char* steps = "steps";
inline constexpr const char* runs = "runs";
inline constexpr const char* members = "members";
inline constexpr const char* degrees = "degrees of freedom";
inline constexpr const char* deviations = "standard deviations";
inline constexpr const char* draws = "draws";
inline constexpr const char* sizes = "sizes";
inline constexpr const char* seconds = "s";
inline constexpr const char* bytes = "bytes";
inline constexpr const char* bytes_per_s = "bytes/s";
}  // namespace unit

void visit(Policy::Intervals& all, auto& row) {
  row.begin("intervals", "docs/inside/measuring.md, The interval");
  row("min_for_batches", all.min_for_batches, unit::steps, "eight batches of two");
  row("batch_length", all.batch_length, unit::steps, "long batches make their means independent");
  row("min_batches", all.min_batches, "batches", "by hand: fewer tell no spread");
  row("max_batches", all.max_batches, "batches",
      "by hand: longer series have longer batches, not more");
  row("min_for_correlation", all.min_for_correlation, unit::steps,
      "by hand: fewer are taken for independent");
  row("least_correlation_of_few", all.least_correlation_of_few, "correlation",
      "steps of a machine have so much in common at least; intervals_test has the coverage");
  row("most_correlation_of_few", all.most_correlation_of_few, "correlation",
      "few steps may seem to be one; intervals_test has the coverage");
  row("most_correlation", all.most_correlation, "correlation",
      "by hand: a bound on what is estimated");
  row("least_degrees", all.least_degrees, unit::degrees, "by hand: a bound on Student's t");
  row("least_bias", all.least_bias, unit::share, "keeps the correction of a variance positive");
  row("few_samples", all.few_samples, unit::steps, "fewer can not tell how correlated they are");
  row("correlation_feared", all.correlation_feared, "correlation",
      "what is believed of few where being wrong would end something early");
}

void visit(Policy::Racing& all, auto& row) {
  row.begin("racing", "docs/inside/measuring.md, Racing");
  row("looks", all.looks, unit::steps, "by hand: few, since each further look costs certainty");
  row("tolerated", all.tolerated, unit::share, "being worse by less is no reason to stop");
  row("error_of_all_looks", all.error_of_all_looks, unit::chance,
      "a challenger that is as good is stopped so often, all looks together (Bonferroni)");
  row("hopeless_ratio", all.hopeless_ratio, unit::ratio,
      "one timed step in 1,400 took longer than so many of its run's mean steps");
  row("cold_ratio", all.cold_ratio, unit::ratio,
      "the longest first step in 936 runs was 7.7 times its run's mean step");
  row("cold_s", all.cold_s, unit::seconds,
      "by hand: beside that, code is compiled and algorithms are chosen in a first step");
  row("prior_spread", all.prior_spread, unit::share, "runs of one configuration differ by so much");
  row("prior_spread_degrees", all.prior_spread_degrees, unit::degrees,
      "as if five runs had said it");
  row("early_looks", all.early_looks, unit::steps,
      "by hand: of DeepSpeed's engine, which makes few steps, and long ones");
  row("early_margins", all.early_margins, unit::share,
      "by hand: likewise, the shortest step so far is longer by so much beside the joint interval");
}

void visit(Policy::Measuring& all, auto& row) {
  row.begin("measuring", "docs/inside/measuring.md, One experiment");
  row("slices_of_budget", all.slices_of_budget, unit::runs,
      "by hand: what may be the answer gets more of them");
  row("min_timed_steps", all.min_timed_steps, unit::steps, "fewer give no interval");
  row("max_timed_steps", all.max_timed_steps, unit::steps,
      "short steps would take millions for the budget");
  row("steady_change", all.steady_change, unit::share,
      "by hand: a step that is shorter than the one before by more shows that they still fall");
  row("max_extra_warmup_steps", all.max_extra_warmup_steps, unit::steps,
      "by hand: warm-up ends whatever steps do, so many after start_profile_step");
  row("warmup_share_of_slice", all.warmup_share_of_slice, unit::share,
      "by hand: likewise, of a slice's time");
  row("half_width", all.half_width, unit::share, "what is told apart is a gain of 1 %");
  row("half_width_of_few", all.half_width_of_few, unit::share,
      "a lucky streak is short: four times as narrow");
  row("look_growth", all.look_growth, unit::ratio,
      "by hand: looks are few: one at every step stops at the first lucky streak");
  row("max_skipped_in_a_row", all.max_skipped_in_a_row, unit::steps,
      "a dynamic loss scale from 2^63 down has found its place by then");
  row("max_at_once_s", all.max_at_once_s, unit::seconds,
      "by hand: steps that are taken without a look at messages, at most");
  row("share_at_once", all.share_at_once, unit::share, "by hand: likewise, of all steps before");
}

void visit(Policy::Answering& all, auto& row) {
  row.begin("answering", "docs/inside/measuring.md, One model of all runs");
  row("relevant_gain", all.relevant_gain, unit::share,
      "by hand: what is better by less is not worth another run");
  row("as_likely", all.as_likely, unit::chance,
      "of members as likely the one with less memory is taken");
  row("as_good", all.as_good, unit::logarithm,
      "by hand: members as fast, of which the one with less memory is taken");
  row("clearly", all.clearly, unit::chance, "below it the baseline stays the answer");
  row("steps_of_interrupted", all.steps_of_interrupted, unit::steps,
      "by hand: fewer are not looked at");
  row("runs_of_interrupted", all.runs_of_interrupted, unit::runs,
      "by hand: fewer do not tell what is usual");
  row("interrupted_ratio", all.interrupted_ratio, unit::ratio,
      "by hand: a mean so far above the median is interrupted");
  row("interrupted_share", all.interrupted_share, unit::share, "interruptions are usual above it");
  row("failures_of_finalist", all.failures_of_finalist, unit::runs,
      "by hand: a finalist that failed each time is passed over");
  row("max_verified", all.max_verified, unit::members, "by hand: run by a job of verification");
  row("max_undecided", all.max_undecided, unit::members, "by hand: a report names no more");
  row("max_names_of_reason", all.max_names_of_reason, unit::members,
      "by hand: a report names no more");
  row("undecided_chance", all.undecided_chance, unit::chance, "by hand: less is not named");
}

void visit(Policy::Runs& all, auto& row) {
  row.begin("runs", "docs/inside/measuring.md, One model of all runs; truth_bench");
  row("max_runs", all.max_runs, unit::runs, "the cost grows with them: some milliseconds");
  row("max_runs_quick", all.max_runs_quick, unit::runs, "a millisecond, for a best-so-far answer");
  row("num_draws", all.num_draws, unit::draws, "chances are known to 1.5 points");
  row("num_draws_quick", all.num_draws_quick, unit::draws, "chances are known to 3 points");
  row("draws_a_sweep", all.draws_a_sweep, unit::draws,
      "of speeds, by the same noise, where max_runs are judged; fewer where runs are fewer");
  row("num_forgotten", all.num_forgotten, unit::draws, "by hand: the chain forgets where it began");
  row("unknown_error", all.unknown_error, unit::share,
      "by hand: a single step says nothing of its error");
  row("largest_error", all.largest_error, unit::share, "by hand: a bound on what steps say");
  row("usual_error_degrees", all.usual_error_degrees, unit::degrees,
      "few steps may be alike by luck: so many say what is usual");
  row("run_deviation", all.run_deviation, unit::share,
      "runs of one configuration differ by so much");
  row("run_freedom", all.run_freedom, unit::logarithm, "by hand: how freely machines differ in it");
  row("drift_deviation", all.drift_deviation, unit::share, "by hand: believed before anything ran");
  row("drift_freedom", all.drift_freedom, unit::logarithm,
      "by hand: how freely machines differ in it");
  row("prediction_deviation", all.prediction_deviation, unit::share,
      "by hand: believed where too little was measured");
  row("prediction_freedom", all.prediction_freedom, unit::logarithm,
      "by hand: how freely it differs");
  row("enough_predictions", all.enough_predictions, unit::members,
      "by hand: fewer do not tell how far they are off");
  row("tails", all.tails, unit::degrees,
      "by hand: a few predictions are off by more than others (Student's t)");
  row("predictions_seen_before", all.predictions_seen_before, unit::members,
      "by hand: one of so many says nothing of its member");
  row("wrong_deviation", all.wrong_deviation, unit::logarithm,
      "by hand: such a one is off by so much");
  row("unknown_deviation", all.unknown_deviation, unit::logarithm,
      "by hand: where nothing is predicted");
  row("slowdowns", all.slowdowns, unit::logarithm,
      "by hand: a disturbed run is slower by one of them");
  row("runs_seen_before", all.runs_seen_before, unit::runs,
      "by hand: one of so many was disturbed");
  row("neighbour_deviation", all.neighbour_deviation, unit::logarithm,
      "by hand: a neighbour may cost so much");
  row("most_disturbed", all.most_disturbed, unit::share, "by hand: a bound on the share");
  row("drift_lengths", all.drift_lengths, "times between two runs",
      "by hand: drift lasts one of them");
  row("lowest_deviation", all.lowest_deviation, unit::share,
      "the grid that deviations are drawn from");
  row("highest_deviation", all.highest_deviation, unit::share, "likewise");
}

void visit(Policy::Repeating& all, auto& row) {
  row.begin("repeating", "docs/inside/measuring.md, The finalists");
  row("results_before_repeats", all.results_before_repeats, "results",
      "by hand: the best is not repeated before");
  row("results_a_repeat", all.results_a_repeat, "results", "by hand: one repeat for so many");
  row("repeats_of_best", all.repeats_of_best, unit::runs, "by hand: of the best during the search");
  row("repeats_at_first", all.repeats_at_first, unit::runs,
      "by hand: of all, beside one for so many results");
  row("runs_left", all.runs_left, unit::runs, "by hand: so many are to fit the time that is left");
  row("rerun_within", all.rerun_within, unit::share, "a neighbour may have cost so much");
  row("deaths_until_left_out", all.deaths_until_left_out, "jobs",
      "by hand: of jobs, in the same finalist");
  row("little_chance", all.little_chance, unit::chance,
      "by hand: what is the best with less is no finalist");
  row("enough_chance", all.enough_chance, unit::chance, "by hand: the answer is settled");
  row("min_finalists", all.min_finalists, unit::members, "finals compare");
  row("max_finalists", all.max_finalists, unit::members, "by hand: in a round");
  row("rounds", all.rounds, "rounds", "by hand: run in any case where the best is in doubt");
  row("rounds_of_engine", all.rounds_of_engine, "rounds",
      "searches of the engine are short, and its runs differ more");
  row("rounds_s", all.rounds_s, unit::seconds, "by hand: long runs have fewer rounds");
  row("longest_finals_s", all.longest_finals_s, unit::seconds,
      "by hand: finals end whatever is in doubt");
  row("share_of_search", all.share_of_search, unit::share,
      "by hand: finals take no more beyond the rounds");
  row("chance_ahead", all.chance_ahead, unit::chance,
      "by hand: with less a round is begun before the last one has ended");
  row("slice_of_turns", all.slice_of_turns, unit::share,
      "of a first run's slice: runs that take turns need no warm-up");
  row("turn_s", all.turn_s, unit::seconds,
      "by hand: longer than what caches take to be a finalist's, short beside drift");
  row("min_turn_steps", all.min_turn_steps, unit::steps,
      "by hand: the first step of a turn finds the caches of another finalist");
  row("max_turn_steps", all.max_turn_steps, unit::steps, "by hand: for steps of no time");
}

void visit(Policy::Flags& all, auto& row) {
  row.begin("flags", "docs/inside/measuring.md, Flags");
  row("min_steps", all.min_steps, unit::steps, "by hand: fewer are not looked at");
  row("min_for_trend", all.min_for_trend, unit::steps, "by hand: fewer are not looked at");
  row("outlying_deviations", all.outlying_deviations, unit::deviations,
      "by hand: farther above the median is an outlier");
  row("outlying_share", all.outlying_share, unit::share, "by hand: likewise, of the median");
  row("slower_share", all.slower_share, unit::share, "by hand: the last third is slower by more");
  row("clear_errors", all.clear_errors, "standard errors",
      "by hand: likewise, in errors of the difference");
  row("min_groups", all.min_groups, "groups", "by hand: fewer say nothing of a host");
  row("slow_share", all.slow_share, unit::share, "by hand: a slow host is slower by more");
  row("usual_clock_share", all.usual_clock_share, unit::share, "GPUs at their power cap reach it");
}

void visit(Policy::Calibrating& all, auto& row) {
  row.begin("calibrating", "docs/trust.md; docs/figures/fidelity.md");
  row("likely_costs_s", all.likely_costs_s, "s each",
      "orders of magnitude, in the order of Overhead");
  row("doubt", all.doubt, unit::share, "by hand: constants may be off by so much of themselves");
  row("noise_of_runs", all.noise_of_runs, unit::share, "by hand: one run's time over another's");
  row("noise_of_tiny", all.noise_of_tiny, unit::share,
      "by hand: likewise, of a tiny engine's step");
  row("before_tiny_engines", all.before_tiny_engines, unit::share, "by hand: another machine");
  row("before_own_runs", all.before_own_runs, unit::share,
      "what makes the recorded spaces' runs likeliest, in any order");
  row("without_constants", all.without_constants, unit::share,
      "by hand: nothing but the order is known");
  row("least_scale", all.least_scale, unit::share, "by hand: a step is never overheads alone");
  row("error_of_believed_time", all.error_of_believed_time, unit::share,
      "by hand: a run is so far from the best of fits");
}

void visit(Policy::Planning& all, auto& row) {
  row.begin("planning", "docs/inside/search.md");
  row("max_members", all.max_members, unit::members, "by hand: above it not every one is listed");
  row("listed", all.listed, unit::members, "by hand: of a larger space");
  row("max_members_of_job", all.max_members_of_job, unit::members,
      "by hand: a job lists so many, which take 0.3 GiB");
  row("share_of_selecting", all.share_of_selecting, unit::share,
      "by hand: a plan that is only shown keeps the rest for the memory of some");
}

void visit(Policy::Race& all, auto& row) {
  row.begin("race", "docs/inside/search.md, race; search_bench");
  row("max_candidates", all.max_candidates, unit::members, "by hand: more are not told apart");
  row("num_explored", all.num_explored, unit::runs,
      "every second of them is run to learn of the space");
  row("hopeless_factor", all.hopeless_factor, unit::ratio,
      "by hand: what is predicted to be so much slower is run for what it promises alone");
  row("hopeless_size_factor", all.hopeless_size_factor, unit::ratio,
      "likewise, where predictions were made of this search's own measurements of sizes");
  row("as_different", all.as_different, unit::share,
      "of members that teach as much the fastest is run");
  row("near", all.near, "knobs", "a value was tried next to the best within so many");
  row("excluded_chance", all.excluded_chance, unit::chance,
      "a value of a knob is excluded below it");
  row("excluded_chance_of_others", all.excluded_chance_of_others, unit::chance,
      "likewise one of memory, or a pair of values");
  row("cost_of_limit", all.cost_of_limit, unit::logarithm,
      "by hand: what is short of memory takes so much longer");
  row("min_cap", all.min_cap, unit::runs, "without beliefs that hold so many are run");
  row("cap_share", all.cap_share, unit::share, "likewise, of the members");
  row("no_precision", all.no_precision, unit::logarithm, "by hand: where an interval has no end");
  row("run_error", all.run_error, unit::share, "by hand: placements and moments differ by so much");
  row("small_chance", all.small_chance, unit::chance, "a search that believes may end below it");
  row("few_measured", all.few_measured, unit::runs,
      "beliefs say little of each member after so few");
  row("min_believed", all.min_believed, unit::runs,
      "the first gives the factor that all predictions share");
  row("min_believed_unpredicted", all.min_believed_unpredicted, unit::runs,
      "without predictions the first says nothing of others");
  row("max_challengers", all.max_challengers, unit::members, "joint draws are among so many");
  row("few_challengers", all.few_challengers, unit::members, "likewise far from the search's end");
  row("num_draws", all.num_draws, unit::draws, "by hand: of the joint chance");
  row("few_draws", all.few_draws, unit::draws,
      "by hand: far from the search's end the chance decides nothing");
  row("relearnt_after", all.relearnt_after, "parts",
      "learning takes cubic time: once for each part");
  row("independent_waiting", all.independent_waiting, unit::members,
      "all that wait are as likely to hold something better as so many that are independent, each "
      "as likely as the likeliest: stated chances of group_sizes, nodes and tiers hold");
  row("independent_waiting_unpredicted", all.independent_waiting_unpredicted, unit::members,
      "likewise without predictions; with four, stated chances are false from 60 to 80 %");
  row("enough_failures", all.enough_failures, unit::runs,
      "one failure may be the machine's, several with one value are the value's");
  row("num_memory_classes", all.num_memory_classes, "classes",
      "by hand: of the logarithm of a memory");
  row("few_begun", all.few_begun, unit::runs,
      "before, the chance of something better says nothing of how many are left");
  row("runs_a_chance", all.runs_a_chance, unit::runs,
      "are left where the chance is 1, in 150 simulated searches; for estimates of time alone");
  row("fewest_runs", all.fewest_runs, unit::ratio,
      "of what is likely: four of five of these searches had no fewer left …");
  row("most_runs", all.most_runs, unit::ratio, "… and no more");
}

void visit(Policy::Surrogate& all, auto& row) {
  row.begin("surrogate",
            "docs/inside/search.md, race; Rasmussen and Williams 2006, chapters 2 and 5");
  row("constant_variance", all.constant_variance, "squared logarithm",
      "predictions may be off by any factor that is common to all");
  row("prior_observations", all.prior_observations, unit::runs,
      "errors count as if so many were just right");
  row("enough_errors", all.enough_errors, unit::runs,
      "fewer say nothing of what beliefs are worth");
  row("recent_errors", all.recent_errors, unit::runs, "older beliefs say little of now");
  row("most_squares", all.most_squares, "squared deviations",
      "eight normal numbers exceed it with a chance of 5 % (chi-squared)");
  row("narrowest", all.narrowest, unit::share, "by hand: beliefs are never taken for better");
  row("favourable_share", all.favourable_share, unit::share,
      "by hand: of errors unlike all before");
  row("heavy_ratio", all.heavy_ratio, unit::ratio,
      "by hand: a normal error is no larger beside the median one");
  row("least_median", all.least_median, unit::deviations,
      "by hand: a smaller median is taken for luck");
  row("heavy_share", all.heavy_share, unit::share,
      "by hand: of a deviation, the scale of Student's t where tails are heavy");
  row("linear", all.linear, unit::logarithm, "a feature is worth 3 % from end to end");
  row("smooth", all.smooth, unit::logarithm, "3 %");
  row("length", all.length, unit::logarithm, "of the smooth part, in ranges of a feature");
  row("own", all.own, unit::logarithm, "1 % is every member's own");
  row("slope", all.slope, unit::logarithm, "a prediction may be off by a fifth of itself");
  row("pair", all.pair, unit::logarithm, "a pair of values is worth 5 %");
  row("shape_pair", all.shape_pair, unit::logarithm,
      "a pair with the group's shape is worth 11 %: group_sizes, nodes and tiers");
  row("shape_pair_unpredicted", all.shape_pair_unpredicted, unit::logarithm,
      "15 % without predictions; few samples do not make it less: nobody knows where it did not "
      "run");
  row("twofold", all.twofold, unit::logarithm,
      "two values together are worth half the product of what each brings");
  row("threefold", all.threefold, unit::logarithm, "three are worth a quarter of theirs");
  row("noise", all.noise, unit::logarithm, "in units of what samples say of theirs");
  row("knob", all.knob, unit::logarithm, "a value of a knob is worth 5 %");
  row("feature", all.feature, unit::logarithm, "what stretches it; large ones are irrelevant");
  row("forgetting", all.forgetting, "1/range", "how fast values stop to resemble each other");
}

void visit(Policy::Memory& all, auto& row) {
  row.begin("memory", "docs/inside/search.md, race");
  row("surely_above", all.surely_above, unit::ratio,
      "runs leave something behind, and the system has its part");
  row("doubt_by_two", all.doubt_by_two, unit::ratio,
      "a need by two sizes of the configuration may be off");
  row("doubt_by_two_far", all.doubt_by_two_far, unit::ratio, "likewise, far beyond them");
  row("doubt_by_one", all.doubt_by_one, unit::ratio, "a need by one size may be off");
  row("doubt_by_one_far", all.doubt_by_one_far, unit::ratio, "likewise, far beyond it");
  row("doubt_by_others", all.doubt_by_others, unit::ratio,
      "a need by other configurations may be off");
  row("doubt_by_plan", all.doubt_by_plan, unit::ratio, "a need by the plan alone may be off");
  row("far_from", all.far_from, unit::ratio, "sizes say less of what is larger by more");
  row("begun_share", all.begun_share, unit::share,
      "one that runs out leaves nothing: a third do, not a half");
  row("num_halvings", all.num_halvings, unit::runs, "the plan errs seldom by more");
  row("enough_sizes", all.enough_sizes, unit::sizes, "two slopes that agree");
}

void visit(Policy::Sizes& all, auto& row) {
  row.begin("sizes", "docs/inside/search.md, Searched micro-batches; DeepSpeed's autotuner");
  row("step_up", all.step_up, unit::ratio, "sizes double, as DeepSpeed's do");
  row("largest_step_up", all.largest_step_up, unit::ratio,
      "it takes as many times as long, and may not pay");
  row("min_gain", all.min_gain, unit::share, "DeepSpeed's plateau");
  row("min_fine_gain", all.min_fine_gain, unit::share, "runs differ by as much");
  row("max_failing", all.max_failing, unit::sizes,
      "with one sample a norm over the batch fails, say");
  row("relevant_stage", all.relevant_stage, unit::share,
      "by hand: a stage predicted to be worse is not searched");
  row("tells_growth", all.tells_growth, unit::ratio,
      "by hand: sizes nearer to each other do not tell");
  row("least_share_of_step", all.least_share_of_step, unit::share,
      "by hand: lines that fall would come to nothing");
  row("enough_told", all.enough_told, unit::sizes, "by hand: fewer do not tell how long steps are");
}

void visit(Policy::ModelBased& all, auto& row) {
  row.begin("model_based", "DeepSpeed's autotuner and its cost model");
  row("num_initial", all.num_initial, unit::runs, "DeepSpeed's setting");
  row("exploration", all.exploration, unit::chance, "DeepSpeed's setting");
  row("early_stopping", all.early_stopping, unit::runs, "DeepSpeed's setting");
  row("num_trials", all.num_trials, unit::runs, "DeepSpeed's setting");
  row("num_rounds", all.num_rounds, "trees", "DeepSpeed's setting");
  row("max_depth", all.max_depth, "nodes", "DeepSpeed's setting");
  row("learning_rate", all.learning_rate, unit::share, "DeepSpeed's setting");
  row("leaf_penalty", all.leaf_penalty, "gain", "DeepSpeed's setting");
  row("value_penalty", all.value_penalty, "curvature", "DeepSpeed's setting");
  row("min_curvature", all.min_curvature, "curvature", "DeepSpeed's setting");
}

void visit(Policy::Verifying& all, auto& row) {
  row.begin("verifying", "docs/trust.md; verify_bench");
  row("max_anchors", all.max_anchors, unit::members, "by hand: beside the baseline");
  row("min_anchors", all.min_anchors, unit::members, "by hand: likewise, at least");
  row("anchor_share", all.anchor_share, unit::share, "by hand: likewise, of the members");
  row("few_members", all.few_members, unit::members, "smaller spaces have a limit of their own");
  row("share_to_end", all.share_to_end, unit::share,
      "by hand: of the members of a smaller space, so many run to the end");
  row("min_to_end", all.min_to_end, unit::members, "by hand: likewise, at least");
  row("few_errors", all.few_errors, unit::runs,
      "by hand: in a smaller space so many say what beliefs are worth");
  row("squares_of_few", all.squares_of_few, "squared deviations",
      "six normal numbers exceed it with a chance of 5 % (chi-squared)");
  row("between_runs", all.between_runs, unit::share,
      "by hand: runs of the engine differ by so much");
  row("unknown_error", all.unknown_error, unit::share,
      "by hand: beliefs are off by so much where nobody has judged");
}

void visit(Policy::Predicting& all, auto& row) {
  row.begin("predicting", "docs/figures/fidelity.md; Bishop 2006, section 3.3");
  row("prior_of_constant", all.prior_of_constant, unit::logarithm,
      "the machine as a whole may be off");
  row("prior_of_feature", all.prior_of_feature, unit::logarithm,
      "a stage, or a doubling of a size, less");
  row("least_noise", all.least_noise, unit::logarithm, "a measurement is off by its own");
  row("prior_noise", all.prior_noise, unit::logarithm, "likewise, before anything was measured");
  row("prior_noise_weight", all.prior_noise_weight, unit::runs, "the prior counts as so many");
  row("near_ratio", all.near_ratio, unit::ratio,
      "sizes this near to a traced one are known from the trace");
  row("max_fit_error", all.max_fit_error, unit::share,
      "counted costs do not explain times of tiny engines that are off by more, on the mean");
}

void visit(Policy::Profiling& all, auto& row) {
  row.begin("profiling", "docs/inside/search.md, race; docs/figures/fidelity.md");
  row("budget_s", all.budget_s, unit::seconds, "by hand: for all groups together");
  row("max_bytes", all.max_bytes, unit::bytes, "by hand: of a run's arenas");
  row("min_parameters", all.min_parameters, "parameters",
      "what does not fit caches then did not before");
  row("min_layers", all.min_layers, "layers", "by hand: of the cut model");
  row("max_members", all.max_members, unit::members, "by hand: looked at, evenly over the space");
  row("max_runs", all.max_runs, unit::runs, "by hand: of a group's shape");
  row("enough_is_known", all.enough_is_known, unit::share, "less to learn is not worth a run");
  row("operations_a_second", all.operations_a_second, "1/s",
      "weighs kinds of work: an order of magnitude");
  row("bytes_a_second", all.bytes_a_second, unit::bytes_per_s, "likewise");
  row("unknown_beyond", all.unknown_beyond, unit::share,
      "by hand: of a size beyond those that are known");
  row("unknown_a_doubling", all.unknown_a_doubling, unit::share,
      "by hand: of a size between two, by their distance");
  row("most_unknown_between", all.most_unknown_between, unit::share, "by hand: likewise, at most");
  row("sizes_a_collective", all.sizes_a_collective, unit::sizes, "by hand: a curve's points");
  row("sizes_of_transfers", all.sizes_of_transfers, unit::sizes, "by hand: a curve's points");
  row("smallest_collective_bytes", all.smallest_collective_bytes, unit::bytes,
      "by hand: the first point of a curve");
  row("largest_collective_bytes", all.largest_collective_bytes, unit::bytes,
      "by hand: the last point of a curve");
  row("largest_transfer_bytes", all.largest_transfer_bytes, unit::bytes,
      "by hand: likewise of a disk");
  row("share_of_job", all.share_of_job, unit::share, "a job is not much longer by measuring");
  row("min_budget_s", all.min_budget_s, unit::seconds, "by hand: of small spaces");
  row("max_budget_s", all.max_budget_s, unit::seconds,
      "of a model of small_model parameters, and in proportion for larger ones");
  row("small_model", all.small_model, "parameters",
      "by hand: its steps take some tenths of a second");
  row("dry_run_budget_s", all.dry_run_budget_s, unit::seconds, "a plan is there in some seconds");
  row("dry_run_timeout_s", all.dry_run_timeout_s, unit::seconds, "the device does not answer then");
  row("dry_run_bytes", all.dry_run_bytes, unit::bytes, "a login node allows little");
  row("share_for_collectives", all.share_for_collectives, unit::share,
      "by hand: of a task's budget, for those that are timed on their own");
  row("steps_of_a_run", all.steps_of_a_run, unit::steps,
      "building, warming up and timing take about as long");
  row("cold_bytes", all.cold_bytes, unit::bytes,
      "data that a collective goes through are not in the caches when its turn comes again");
  row("sum_elements", all.sum_elements, "elements", "sums y += x from the caches into memory");
  row("sum_budget_s", all.sum_budget_s, unit::seconds, "by hand: of all sizes of sums together");
  row("transfers_budget_s", all.transfers_budget_s, unit::seconds,
      "by hand: of all sizes together, to the disk and back");
  row("repeats", all.repeats, unit::runs, "a device's stamps are exact to half a microsecond");
  row("interpreter_passes", all.interpreter_passes, unit::runs,
      "by hand: the least of them counts");
}

void visit(Policy::Timeouts& all, auto& row) {
  row.begin("timeouts", "docs/reliability.md");
  row("extra_warmup_steps", all.extra_warmup_steps, unit::steps,
      "beside those that were asked for, until steps settle: see measuring.max_extra_warmup_steps");
  row("trial_timeout_factor", all.trial_timeout_factor, unit::ratio,
      "predictions are off by a tenth, machines that others use by a factor");
  row("min_trial_timeout_s", all.min_trial_timeout_s, unit::seconds,
      "by hand: to build a model on a busy machine");
  row("max_timeout_s", all.max_timeout_s, unit::seconds,
      "by hand: of members where the attempt itself has no limit");
  row("steps_of_silence", all.steps_of_silence, unit::steps,
      "by hand: a measuring group gives a sign of life at least this often");
  row("min_flops_per_rank", all.min_flops_per_rank, "FLOP/s", "a tenth of a slow core");
  row("min_host_bytes_per_s", all.min_host_bytes_per_s, unit::bytes_per_s,
      "all ranks of a host at once have pages zeroed and pinned");
  row("min_inactivity_timeout_s", all.min_inactivity_timeout_s, unit::seconds,
      "by hand: a loaded host stands still for seconds");
  row("foreign_inactivity_timeout_s", all.foreign_inactivity_timeout_s, unit::seconds,
      "nobody here knows how long a plug-in's steps take; --trial-timeout says it");
  row("inactivity_timeout_steps", all.inactivity_timeout_steps, unit::steps,
      "predictions are off by a tenth, machines that others use by a factor");
  row("default_drain_timeout_s", all.default_drain_timeout_s, unit::seconds,
      "nothing is predicted: as for an experiment that is silent");
  row("drain_timeout_steps", all.drain_timeout_steps, unit::steps,
      "the host is two micro-steps ahead of a GPU at most, and never a step");
}

void visit(Policy::Tries& all, auto& row) {
  row.begin("tries", "docs/reliability.md");
  row("deaths_until_alone", all.deaths_until_alone, unit::runs,
      "one may be chance; alone, an experiment shows whether it was the cause");
  row("deaths_until_blamed", all.deaths_until_blamed, unit::runs,
      "it was alone at the last one of them");
  row("unseen_deaths_until_blamed", all.unseen_deaths_until_blamed, unit::runs,
      "the whole job was gone, and somebody may have killed it");
  row("tries_after_loss", all.tries_after_loss, unit::runs,
      "a lost rank is not the experiment's fault; twice is no chance");
}

/// The rows of all groups.
void visit(Policy& policy, auto& row) {
  visit(policy.intervals, row);
  visit(policy.racing, row);
  visit(policy.measuring, row);
  visit(policy.answering, row);
  visit(policy.runs, row);
  visit(policy.repeating, row);
  visit(policy.flags, row);
  visit(policy.calibrating, row);
  visit(policy.planning, row);
  visit(policy.race, row);
  visit(policy.surrogate, row);
  visit(policy.memory, row);
  visit(policy.sizes, row);
  visit(policy.model_based, row);
  visit(policy.verifying, row);
  visit(policy.predicting, row);
  visit(policy.profiling, row);
  visit(policy.timeouts, row);
  visit(policy.tries, row);
}

}  // namespace dstune::policy_rows
