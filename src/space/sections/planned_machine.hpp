#pragma once
/// The machine that a plan is for, where it is not this one, and what its training brings along.
/// Local.

#include "sections/sections.hpp"

namespace dstune {

/// `JobSpec::cluster` and what follows from it: the command line's choice before that of
/// `dstune.device`. A job runs where it is: the section tells it nothing. `section`: `dstune`, or
/// null.
void decide_machine(const Overrides& overrides, const json::Node* section, SectionTarget& target);

/// The ranks of a node where neither resources nor a hostfile tell them.
[[nodiscard]] int usual_ranks(const JobSpec& job, int fallback);

/// `TargetSpec::trainable`: what trains beside frozen parameters, of which the step here knows
/// none.
void decide_trainable(const Overrides& overrides, const json::Node* section, SectionTarget& target);

/// `TargetSpec::optimizer` of a training on GPUs whose config names none: that of the training
/// command, else that of Hugging Face's Trainer with the release of PyTorch. `section`: `dstune`,
/// or null.
void decide_target_optimizer(const Overrides& overrides, const json::Node* section, JobSpec& job);

/// Decides which memory of the host DeepSpeed page-locks: as the config's `pin_memory` says, else
/// as the release has it. Where several are tried, what takes more memory.
void decide_pinning(JobSpec& job);

}  // namespace dstune
