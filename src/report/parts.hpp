#pragma once
/// Parts that several reports share: names of files, JSON, tables, templates, and words about an
/// answer. Local.

#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/ranking/answer.hpp"

namespace dstune {

/// The names of the files.
namespace file_name {

inline constexpr std::string_view journal = "journal.jsonl";
inline constexpr std::string_view optimal_config = "ds_config_optimal.json";
inline constexpr std::string_view optimal = "optimal.json";
inline constexpr std::string_view optimal_command = "cmd_optimal.txt";
inline constexpr std::string_view training_arguments = "training_arguments.json";
inline constexpr std::string_view verify_slurm = "verify.sbatch";
inline constexpr std::string_view verify_pbs = "verify.pbs";
/// The folder that the verification jobs leave. It is theirs, so it is never deleted.
inline constexpr std::string_view verification = "verify";
inline constexpr std::string_view summary = "summary.txt";
inline constexpr std::string_view page = "report.html";
inline constexpr std::string_view page_data = "report.json";
inline constexpr std::string_view table = "results.csv";
inline constexpr std::string_view validation = "validation.json";
inline constexpr std::string_view environment = "environment.json";
inline constexpr std::string_view exit_status = "exit_status.json";
/// The state of the job that runs, rewritten every few seconds.
inline constexpr std::string_view state = "status.json";
/// It is in nobody's way: where something else has its place, nothing is read and nothing written.
inline constexpr std::string_view library_choices = "library_choices.json";
/// The names of our files in a folder (own_files.hpp).
inline constexpr std::string_view manifest = ".dstune-manifest.jsonl";
/// Folders that are taken where the default ones are somebody else's; DeepSpeed has the same ones.
inline constexpr const char* other_results = "dstune_results";
inline constexpr const char* other_exps = "dstune_exps";
/// The lock of the job that writes there now (folder_lock.hpp); nothing but its end deletes it.
inline constexpr std::string_view lock = "lock";

/// All of the results folder but the journal and what is in nobody's way, in the order in which
/// they are deleted: first what says that a run is complete.
inline constexpr std::array in_results = {
    exit_status,  state,      optimal,    optimal_command, optimal_config, training_arguments,
    verify_slurm, verify_pbs, validation, summary,         page,           page_data,
    environment,  table};

inline constexpr std::string_view experiment = "exp.json";
inline constexpr std::string_view config = "ds_config.json";
inline constexpr std::string_view metrics = "metrics.json";
/// The engine's measurement beside our own step.
inline constexpr std::string_view verified = "verified.json";
/// Earlier releases wrote it.
inline constexpr std::string_view memory_picture = "memory.svg";
inline constexpr std::string_view memory_text = "memory.txt";
inline constexpr std::string_view traceback = "traceback.txt";
/// All of an experiment's folder; exp.json last, since its mark says whose the folder is.
inline constexpr std::array in_experiment = {memory_picture, memory_text, traceback, verified,
                                             metrics,        config,      experiment};

/// The value of `written_by` in exp.json; DeepSpeed's own has the same name and lacks this.
inline constexpr std::string_view writer = "dstune-mpi";

/// Is the name safe as that of a folder below the results?
[[nodiscard]] inline bool is_experiment_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

/// Names of a temporary file that a killed process left behind: ".dstune-123-4.tmp",
/// ".dstune-lock-AbCdEf.tmp", ".dstune-probe-AbCdEf.tmp".
[[nodiscard]] bool is_temporary(std::string_view name);

}  // namespace file_name

/// One of a value's numbers.
[[nodiscard]] inline std::optional<double> part_of(const std::optional<MetricValue>& value,
                                                   double MetricValue::*part) {
  return value ? std::optional((*value).*part) : std::nullopt;
}

/// "9.5 to 10.5"; empty where there is no value, or one sample, which bounds nothing.
[[nodiscard]] std::string interval_text(const std::optional<MetricValue>& value);
/// "10 samples/s (95 % interval 9.5 to 10.5)"; without the interval where it has no end.
[[nodiscard]] std::string value_text(const MetricValue& value, Metric metric);

/// JSON has no NaN and no infinity: null stands for them, and for what is not known.
[[nodiscard]] inline json::Value finite_or_null(std::optional<double> number) {
  return number && std::isfinite(*number) ? json::Value(*number) : json::Value();
}

/// One line, with whatever is no UTF-8 repaired; `indent`: several lines, for people.
[[nodiscard]] std::string json_text(const json::Value& value, int indent = -1);

/// The configuration alone: neither the tuner's section nor ours.
[[nodiscard]] json::Value without_tuning(json::Value ds_config);

/// "6.74 billion", "124 million", "85200".
std::string large_count(std::int64_t count);
/// "6.74 billion parameters, all trainable; 1.5 GiB of activations …", without a full stop.
std::string model_profile_text(const ModelProfile& profile);
/// Every kind of reason with its number of members, be it 0.
json::Value prune_counts_json(const PruneCounts& counts);
/// Null where the model is not known.
json::Value model_profile_json(const std::optional<ModelProfile>& profile);

/// A template (embedded/NAME.hpp) with each @NAME@ replaced by its text, in which no name is looked
/// for.
std::string filled(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, std::string>> texts);

enum class ColumnType {
  text,    ///< to the left
  number,  ///< to the right, the decimal points below each other
};
struct Column {
  std::string header;
  ColumnType type = ColumnType::text;
};
using TableRow = std::vector<std::string>;

/// A table as Python's `tabulate` prints it in its "pipe" style, which DeepSpeed's summary uses. A
/// row has a cell for each column. Ends with a line end.
std::string pipe_table(const std::vector<Column>& columns, const std::vector<TableRow>& rows);

/// Tells whether anything is ranked by the target's time. If nothing is, reports do not speak of
/// it.
[[nodiscard]] bool has_targets(const Answer& answer);
/// The source of the target's time; empty if members are ranked by their own.
std::string target_text(const Recommendation& recommendation);
/// "all_gather" of its calls, "all_gather_ahead" of those ahead of their use; empty of what is no
/// collective call.
std::string collective_kind(Overhead overhead);

/// Says why the answer is another one than the best that was measured here; empty if it is that
/// one.
std::string choice_text(const Recommendation& recommendation);

/// Pairs of a name and a text for an answer with a recommendation. They say what the calibration
/// does, how often the answer was measured, how sure it is, and what energy it takes.
std::vector<std::pair<std::string, std::string>> confidence_lines(const Answer& answer);

/// "73.5 %" of a probability; what is next to 0 or 1 has no digits that say anything.
std::string percent_text(double probability);
/// Values of this metric are speeds, so that "faster" says what "better" means.
[[nodiscard]] bool is_speed(Metric metric);
/// "chance that an untested member is more than 1 % faster"
std::string untested_words(Metric metric);
/// Says what an answer's label means.
std::string label_words(std::string_view label);
/// Names the members that may be as good as the answer, and by how much they may be better. It says
/// what more time would give, too. Empty if the answer is clear.
std::string undecided_text(const Recommendation& recommendation);
/// The same without the time, with at most so many names.
std::string rivals_text(const Recommendation& recommendation, std::size_t max_names);
/// "3.85 (3.7 to 4.01)": the answer's throughput over the baseline's, which has a gain.
std::string factor_text(const BaselineStanding& baseline);
/// The answer beside the baseline; empty where there is none.
std::string gain_text(const Recommendation& recommendation);
/// "32 samples instead of 64. …": sentences without the last full stop, of what a user may do about
/// it, too. Empty where the global batch stays.
std::string batch_change_text(const Recommendation& recommendation);
/// The cost of the tuning, and when it is earned back.
std::string cost_text(const Recommendation& recommendation);
/// The price of the search in DeepSpeed's engine as a share of all members there, as sentences
/// without the last full stop; empty where the engine did not decide, or ran them all.
std::string engine_price_text(const Answer& answer);
/// How steady the machine was, and what that did to the answer, as sentences without the last full
/// stop; empty where nothing was compared.
std::string machine_text(const Answer& answer);

/// The end of a sentence that says why members did not run, behind their number: "would run exactly
/// like another".
[[nodiscard]] std::string_view prune_words(PruneKind kind);

/// Says which keys change the losses, without a full stop; usually empty.
std::string changed_numerics_text(const Experiment& experiment);

/// A line for each slow host, and one for how many experiments have flags of a kind.
std::vector<std::string> warning_lines(const Answer& answer);

}  // namespace dstune
