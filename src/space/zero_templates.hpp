#pragma once
/// DeepSpeed's templates and default grids of the ZeRO stages (docs/space.md): what `fast: false`
/// adds to the document. Local.

#include "dstune/space/job_spec.hpp"

namespace dstune {

/// The `zero_optimization` section of a stage: the template (the job's own file where it names
/// one), over it the stage's default lists, over both what the document says in `written`, whose
/// stage is replaced. Bucket sizes of stage 3 follow from the model's hidden size, rounded. Adds
/// problems.
json::Value full_zero_section(const JobSpec& job, int stage, const json::Value& written,
                              json::Problems& problems);

}  // namespace dstune
