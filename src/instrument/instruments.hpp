#pragma once
/// The instruments by their rooms. Local.

#include <memory>
#include <string_view>

#include "dstune/instrument/instrument.hpp"

namespace dstune::instrument {

[[nodiscard]] std::unique_ptr<Instrument> own_step(const WorkloadSpec& spec);
[[nodiscard]] std::unique_ptr<Instrument> given(const WorkloadSpec& spec);
[[nodiscard]] std::unique_ptr<Instrument> plugin(const WorkloadSpec& spec);
[[nodiscard]] std::unique_ptr<Instrument> engine(const WorkloadSpec& spec);

/// Sets the hash of the library's content. Throws Error.
void complete_plugin(JobSpec& job, WorkloadSpec& spec);
/// Finds the user's script for DeepSpeed's engine, in `dstune.training_command` where the engine's
/// object names none. Throws InputError where there is none in it, or it does not exist.
void complete_engine(JobSpec& job, WorkloadSpec& spec);

/// How an instrument is made. The key /dstune/workload/type has the same words as choices.
struct Maker {
  std::string_view word;
  std::unique_ptr<Instrument> (*make)(const WorkloadSpec& spec);
  void (*complete)(JobSpec& job, WorkloadSpec& spec) = nullptr;  ///< null: nothing is left open
};
inline constexpr Maker makers[] = {
    {"transformer", own_step},
    {"synthetic", given},
    {"replay", given},
    {"plugin", plugin, complete_plugin},
    {"deepspeed", engine, complete_engine},
};

}  // namespace dstune::instrument
