#pragma once
/// The release of DeepSpeed that a job is for, and what is known beside the config's keys. Local.

#include "sections/sections.hpp"

namespace dstune {

/// Decides the version of the DeepSpeed that will train, where nobody has named it, and tells what
/// follows. `python`: where it is looked for, if it is. `place`: of its problems.
void decide_release(std::optional<PythonEnvironment> python, const json::Node& place,
                    SectionTarget& target);

/// The facts that decide whether keys have an effect.
[[nodiscard]] KeyUse key_use_of(const JobSpec& job, bool is_on_cpus);

/// Adds the problems of our own sections. Unknown keys are warned of where the document allows
/// them.
void add_section_problems(const json::Problems& found, SectionTarget& target);

}  // namespace dstune
