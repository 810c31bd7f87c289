#pragma once
/// The spaces that the tests search. Local.

#include <string>
#include <vector>

#include "job.hpp"

namespace dstune::e2e {

/// A Hugging Face config.json of a GPT-2 with a few thousand parameters.
[[nodiscard]] Json tiny_gpt2_config();

/// The tiny GPT-2, trained: every stage, one micro-batch size unless changed. Wants config.json
/// (tiny_gpt2_config()) beside it.
[[nodiscard]] Json transformer_space(const std::vector<int>& num_gpus);

/// No training: steps that take so long. Stage 0, so that names are z0_gas1_tmbspg<m>.
[[nodiscard]] Json synthetic_space(const std::vector<int>& num_gpus,
                                   const std::vector<int>& micro_batches, double step_time_s = 0);

/// The same, with step times from the table beside it, which is table.json.
[[nodiscard]] Json replay_space(const std::vector<int>& num_gpus,
                                const std::vector<int>& micro_batches);
/// Writes space.json, and config.json beside it.
void write_transformer(const Job& job, const Json& space);

/// 1, 2, … up to this.
[[nodiscard]] std::vector<int> sizes_up_to(int last);
/// z<stage>_gas1_tmbspg<micro_batch>
[[nodiscard]] std::string short_name(int stage, int micro_batch);

}  // namespace dstune::e2e
