#pragma once
/// The state of the job that writes, or wrote, in a results folder, as its files tell it outside of
/// the job: `dstune-mpi status DIR`. Nothing is written. Local.

#include <optional>
#include <string>

#include "dstune/base/json.hpp"
#include "dstune/report/job_state.hpp"

namespace dstune {

/// status.json, which a job rewrites while it runs.
[[nodiscard]] json::Value state_json(const JobState& state);
/// The same read back; nothing where the value is no state. Members that are missing have their
/// defaults.
[[nodiscard]] std::optional<JobState> state_of(const json::Value& value);

/// Who holds the folder's lock.
struct LockSign {
  std::string holder;       ///< "host n12, process 4711, since …"
  std::string how_to_stop;  ///< "scancel 123"; empty where nobody knows
  double age_s = 0;         ///< of the last sign of life, by this machine's clock
};

struct FolderStatus {
  enum class Life {
    running,  ///< somebody holds the folder
    ended,    ///< exit_status.json says how
    gone,     ///< the holder is dead, or has shown no sign of life for long
    unknown,  ///< nobody holds the folder, and nobody said how the last job ended
  };
  std::string folder;
  Life life = Life::unknown;
  std::optional<LockSign> lock{};
  std::optional<JobState> state{};
  json::Value best{};  ///< optimal.json; null where there is no answer yet
  json::Value end{};   ///< exit_status.json; null where there is none
};

/// Reads the folder. Throws InputError where it has nothing of dstune-mpi's.
[[nodiscard]] FolderStatus folder_status(const std::string& folder);

/// Lines for people.
[[nodiscard]] std::string status_text(const FolderStatus& status);
/// --format json
[[nodiscard]] json::Value status_json(const FolderStatus& status);

}  // namespace dstune
