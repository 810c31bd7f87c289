#pragma once
/// The instruments by their rooms. Local.

#include <memory>

#include "dstune/instrument/instrument.hpp"

namespace dstune::instrument {

[[nodiscard]] std::unique_ptr<Instrument> own_step(const WorkloadSpec& spec);
[[nodiscard]] std::unique_ptr<Instrument> given(const WorkloadSpec& spec);
[[nodiscard]] std::unique_ptr<Instrument> plugin(const WorkloadSpec& spec);
[[nodiscard]] std::unique_ptr<Instrument> engine(const WorkloadSpec& spec);

/// Sets the hash of the library's content. Throws Error.
void complete_plugin(WorkloadSpec& spec);
/// Finds the user's script for DeepSpeed's engine, in `dstune.training_command` where the engine's
/// object names none. Throws InputError where there is none in it, or it does not exist.
void complete_engine(JobSpec& job, WorkloadSpec& spec);

}  // namespace dstune::instrument
