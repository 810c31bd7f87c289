#pragma once
/// Every number that is a choice of searching, ranking and measuring. The table in policy_rows.hpp
/// says each one's unit and reason, by which `environment.json` shows them. Tests and benchmarks
/// give another policy to what they try. A policy outlives what it is given to. Local.

#include <array>
#include <cstddef>
#include <cstdint>

#include "dstune/base/json.hpp"
#include "dstune/core/target_time.hpp"

namespace dstune {

struct Policy {
  /// The interval of a series' mean.
  struct Intervals {
    std::size_t min_for_batches = 16, batch_length = 32, min_batches = 8, max_batches = 16;
    std::size_t min_for_correlation = 5;
    double least_correlation_of_few = 0.2, most_correlation_of_few = 0.8, most_correlation = 0.95;
    double least_degrees = 1.5, least_bias = 0.05;
    std::size_t few_samples = 32;
    double correlation_feared = 0.8;
  } intervals;

  /// The race of a run against the best, and how much runs differ.
  struct Racing {
    std::array<std::size_t, 7> looks = {1, 5, 10, 20, 40, 80, 160};
    double tolerated = 0.01, error_of_all_looks = 0.05;
    double hopeless_ratio = 5, cold_ratio = 20, cold_s = 10;
    double prior_spread = 0.01, prior_spread_degrees = 4;
    std::array<std::size_t, 2> early_looks = {2, 3};
    std::array<double, 2> early_margins = {0.2, 0.1};
  } racing;

  /// When a run's warm-up and its timed steps end.
  struct Measuring {
    int slices_of_budget = 5;
    std::size_t min_timed_steps = 5, max_timed_steps = 10'000;
    std::size_t max_extra_warmup_steps = 10;
    double steady_change = 0.05, warmup_share_of_slice = 0.5;
    double half_width = 0.01, half_width_of_few = 0.0025, look_growth = 1.25;
    int max_skipped_in_a_row = 100;
    double max_at_once_s = 0.5, share_at_once = 0.25;
  } measuring;

  /// The answer among what was measured.
  struct Answering {
    double relevant_gain = 0.01, as_likely = 0.02, as_good = 0.001, clearly = 0.95;
    std::size_t steps_of_interrupted = 5, runs_of_interrupted = 8;
    double interrupted_ratio = 1.03, interrupted_share = 0.5;
    int failures_of_finalist = 2;
    std::size_t max_verified = 3, max_undecided = 5, max_names_of_reason = 3;
    double undecided_chance = 0.05;
  } answering;

  /// The model of all runs.
  struct Runs {
    std::size_t max_runs = 64, max_runs_quick = 24;
    int num_draws = 1000, num_draws_quick = 250, draws_a_sweep = 5, num_forgotten = 30;
    double unknown_error = 0.05, largest_error = 0.2, usual_error_degrees = 4;
    double run_deviation = 0.01, run_freedom = 1, drift_deviation = 0.005, drift_freedom = 1.3;
    double prediction_deviation = 0.1, prediction_freedom = 0.7;
    std::size_t enough_predictions = 5;
    double tails = 4, predictions_seen_before = 20, wrong_deviation = 0.5, unknown_deviation = 2;
    std::array<double, 5> slowdowns = {0.03, 0.06, 0.12, 0.25, 0.5};
    double runs_seen_before = 20, neighbour_deviation = 0.03, most_disturbed = 0.5;
    std::array<double, 5> drift_lengths = {2, 5, 15, 50, 150};
    double lowest_deviation = 5e-4, highest_deviation = 0.5;
  } runs;

  /// Runs that are made once more.
  struct Repeating {
    std::size_t results_before_repeats = 5, results_a_repeat = 10;
    int repeats_of_best = 2, repeats_at_first = 2;
    double runs_left = 20, rerun_within = 0.05;
    int deaths_until_left_out = 2;
    double little_chance = 0.03, enough_chance = 0.95;
    std::size_t min_finalists = 2, max_finalists = 6;
    int rounds = 6, rounds_of_engine = 12;
    double rounds_s = 300, longest_finals_s = 1800, share_of_search = 0.5;
    double chance_ahead = 0.8, slice_of_turns = 0.5;
    double turn_s = 0.1;
    int min_turn_steps = 2, max_turn_steps = 100;
  } repeating;

  /// Signs that a measurement is strange.
  struct Flags {
    std::size_t min_steps = 8, min_for_trend = 24;
    double outlying_deviations = 6, outlying_share = 0.1;
    double slower_share = 0.03, clear_errors = 2;
    int min_groups = 3;
    double slow_share = 0.05, usual_clock_share = 0.95;
  } flags;

  /// The target's time.
  struct Calibrating {
    Overheads likely_costs_s{20e-3,  0.1e-3, 0.1e-3, 1e-3,   1e-3,   0.1e-3, 0.3e-9, 0.1, 0.5e-3,
                             0.5e-3, 0.5e-3, 0.5e-3, 0.5e-3, 0.5e-3, 1e-9,   1e-9,   1e-9};
    double doubt = 0.2, noise_of_runs = 0.03, noise_of_tiny = 0.05;
    /// The shares by which constants may be off: standard deviations.
    struct Doubts {
      double scale = 0, cost = 0;
      double host = 0, network = 0;  ///< of a factor that all costs of the host, the network have
      double least_known = 0;  ///< the least cost that the doubt is a share of, in likely ones
    };
    Doubts before_tiny_engines{.scale = 0.05, .cost = 0.2, .host = 2, .network = 2};
    Doubts before_own_runs{
        .scale = 0.7, .cost = 0.4, .host = 0.5, .network = 0.3, .least_known = 1};
    Doubts without_constants{.scale = 3, .cost = 1, .least_known = 1};
    double least_scale = 0.05, error_of_believed_time = 0.06;
  } calibrating;

  /// The plan of a space.
  struct Planning {
    std::uint64_t max_members = 100'000, listed = 2'000, max_members_of_job = 1'000'000;
    double share_of_selecting = 0.5;
  } planning;

  /// The tuner race.
  struct Race {
    std::size_t max_candidates = 4000, num_explored = 8;
    double hopeless_factor = 4, hopeless_size_factor = 1.5, as_different = 0.75;
    int near = 3;
    double excluded_chance = 0.005, excluded_chance_of_others = 0.02, cost_of_limit = 0.1;
    std::size_t min_cap = 10;
    double cap_share = 0.35, no_precision = 0.2, run_error = 0.02;
    double small_chance = 0.05;
    std::size_t few_measured = 2, min_believed = 1, min_believed_unpredicted = 2;
    std::size_t max_challengers = 200, few_challengers = 64;
    int num_draws = 2000, few_draws = 400;
    std::size_t relearnt_after = 10;
    double independent_waiting = 1.25, independent_waiting_unpredicted = 3;
    int enough_failures = 3, num_memory_classes = 16;
    std::size_t few_begun = 3;
    double runs_a_chance = 20, fewest_runs = 0.45, most_runs = 2.2;
  } race;

  /// The Gaussian process of race.
  struct Surrogate {
    double constant_variance = 1, prior_observations = 2;
    std::size_t enough_errors = 8, recent_errors = 16;
    double most_squares = 15.5, narrowest = 0.6, favourable_share = 0.25;
    double heavy_ratio = 5, least_median = 0.3, heavy_share = 0.75;
    /// A logarithm that is learnt: the search starts there, and leaves so freely.
    struct Hyperparameter {
      double start = 0, freedom = 0;
    };
    Hyperparameter linear{-3.5, 1.2}, smooth{-3.5, 1.2}, length{0, 0.7}, own{-4.5, 1};
    Hyperparameter slope{-1.6, 1}, pair{-3, 1}, noise{0, 0.5}, knob{-3, 1}, feature{0, 1};
    Hyperparameter shape_pair{-2.2, 1}, shape_pair_unpredicted{-1.9, 0.5};
    Hyperparameter twofold{-0.7, 0.7}, threefold{-1.4, 0.7};
    double forgetting = 1.5;
  } surrogate;

  /// The memory of members, by what runs took.
  struct Memory {
    double surely_above = 1.05;
    double doubt_by_two = 1.02, doubt_by_two_far = 1.05, doubt_by_one = 1.04, doubt_by_one_far = 2;
    double doubt_by_others = 1.5, doubt_by_plan = 1.25;
    std::int64_t far_from = 2;
    double begun_share = 1.0 / 3;
    int num_halvings = 2;
    std::size_t enough_sizes = 3;
  } memory;

  /// The search for a micro-batch.
  struct Sizes {
    std::int64_t step_up = 2, largest_step_up = 4;
    double min_gain = 0.05, min_fine_gain = 0.01;
    std::ptrdiff_t max_failing = 3;
    double relevant_stage = 0.9;
    double tells_growth = 1.5, least_share_of_step = 0.1;
    std::ptrdiff_t enough_told = 3;
  } sizes;

  /// The tuner model_based.
  struct ModelBased {
    std::size_t num_initial = 2;
    double exploration = 0.2;
    int early_stopping = 5, num_trials = 50;
    int num_rounds = 10, max_depth = 3;
    double learning_rate = 0.3, leaf_penalty = 1e-4, value_penalty = 1, min_curvature = 1;
  } model_based;

  /// The search of DeepSpeed's engine by forecasts of the built-in step.
  struct Verifying {
    std::size_t max_anchors = 4, min_anchors = 2, few_members = 50;
    double anchor_share = 0.1, share_to_end = 0.25;
    std::size_t min_to_end = 6, few_errors = 6;
    double squares_of_few = 12.6;
    double between_runs = 0.04, unknown_error = 0.1;
  } verifying;

  /// Predictions of a step's time.
  struct Predicting {
    double prior_of_constant = 0.10, prior_of_feature = 0.03;
    double least_noise = 0.01, prior_noise = 0.03, prior_noise_weight = 4;
    double near_ratio = 2, max_fit_error = 0.25;
  } predicting;

  /// The timing of the machine before the search.
  struct Profiling {
    double budget_s = 5;
    std::int64_t max_bytes = 1 << 30, min_parameters = 16'000'000, min_layers = 2;
    std::size_t max_members = 64, max_runs = 12;
    double enough_is_known = 0.01, operations_a_second = 1e11, bytes_a_second = 1e10;
    double unknown_beyond = 0.5, unknown_a_doubling = 0.05, most_unknown_between = 0.25;
    int sizes_a_collective = 7, sizes_of_transfers = 4;
    std::int64_t smallest_collective_bytes = 4096, largest_collective_bytes = 64 << 20;
    std::int64_t largest_transfer_bytes = 32 << 20;
    double share_of_job = 0.05, min_budget_s = 0.5, max_budget_s = 5, small_model = 2e8;
    double dry_run_budget_s = 1, dry_run_timeout_s = 120;
    std::int64_t dry_run_bytes = 256 << 20;
    double share_for_collectives = 0.2, steps_of_a_run = 7;
    std::int64_t cold_bytes = 32 << 20;
    std::array<std::int64_t, 6> sum_elements = {1 << 14, 1 << 16, 1 << 18,
                                                1 << 20, 1 << 22, 1 << 23};
    double sum_budget_s = 0.02, transfers_budget_s = 1;
    int repeats = 10, interpreter_passes = 6;
  } profiling;

  /// How long a run may take or be silent. Generous: it only has to tell a hang from a slow
  /// machine.
  struct Timeouts {
    double extra_warmup_steps = 3, trial_timeout_factor = 20, min_trial_timeout_s = 300;
    double max_timeout_s = 24 * 3600.0, steps_of_silence = 20;
    double min_flops_per_rank = 1e9, min_host_bytes_per_s = 5e8;
    double min_inactivity_timeout_s = 60, foreign_inactivity_timeout_s = 600;
    double inactivity_timeout_steps = 50;
    double default_drain_timeout_s = 60, drain_timeout_steps = 5;
  } timeouts;

  /// How often a run is tried again after a death.
  struct Tries {
    int deaths_until_alone = 2, deaths_until_blamed = 2, unseen_deaths_until_blamed = 4;
    int tries_after_loss = 2;
  } tries;
};

/// The policy of a job.
[[nodiscard]] const Policy& default_policy();

/// Every choice by group and name, as `environment.json` shows it: value, unit and reason. A group
/// has the document that its values come from as `source`.
[[nodiscard]] json::Value policy_json(const Policy& policy);

}  // namespace dstune
