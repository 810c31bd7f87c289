#pragma once
/// What the files are called.

#include <array>
#include <string>
#include <string_view>

namespace dstune::file_name {

inline constexpr std::string_view journal = "journal.jsonl";
inline constexpr std::string_view optimal_config = "ds_config_optimal.json";
inline constexpr std::string_view optimal = "optimal.json";
inline constexpr std::string_view optimal_command = "cmd_optimal.txt";
inline constexpr std::string_view verify_slurm = "verify.sbatch";
inline constexpr std::string_view verify_pbs = "verify.pbs";
/// What the verification jobs leave; theirs, so it is never deleted.
inline constexpr std::string_view verification = "verify";
inline constexpr std::string_view summary = "summary.txt";
inline constexpr std::string_view page = "report.html";
inline constexpr std::string_view table = "results.csv";
inline constexpr std::string_view validation = "validation.json";
inline constexpr std::string_view environment = "environment.json";
inline constexpr std::string_view exit_status = "exit_status.json";

/// All of the results folder, in the order in which they are deleted: first what says that a run is
/// complete, last the journal, which names the experiments.
inline constexpr std::array in_results = {
    exit_status, optimal, optimal_command, optimal_config, verify_slurm, verify_pbs, validation,
    summary,     page,    environment,     table,          journal};

inline constexpr std::string_view experiment = "exp.json";
inline constexpr std::string_view config = "ds_config.json";
inline constexpr std::string_view metrics = "metrics.json";
inline constexpr std::string_view memory_picture = "memory.svg";
inline constexpr std::string_view memory_text = "memory.txt";
/// All of an experiment's folder; exp.json last, since its mark says whose the folder is.
inline constexpr std::array in_experiment = {memory_picture, memory_text, metrics, config,
                                             experiment};

/// What exp.json says in `written_by`; DeepSpeed's own has the same name and lacks this.
inline constexpr std::string_view writer = "dstune-mpi";

/// Is the name safe as that of a folder below the results?
[[nodiscard]] inline bool is_experiment_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace dstune::file_name
