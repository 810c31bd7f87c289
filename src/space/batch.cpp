#include <tuple>

#include <fmt/format.h>

#include "dstune/space/search_space.hpp"

namespace dstune {

std::optional<BatchTriple> resolve_batch(std::optional<std::int64_t> train_batch_size,
                                         std::optional<std::int64_t> micro_batch,
                                         std::optional<std::int64_t> accumulation_steps,
                                         std::int64_t group_size, std::string& why) {
  auto [total, micro, steps] = std::tuple(train_batch_size, micro_batch, accumulation_steps);
  if (!total && !micro) {
    why = "either train_batch_size or train_micro_batch_size_per_gpu is needed";
    return std::nullopt;
  }
  for (const auto& given : {total, micro, steps}) {
    if (given && *given < 1) {
      why = fmt::format("batch sizes are positive, {} is not", *given);
      return std::nullopt;
    }
  }
  // What is absent follows by integer division, as in DeepSpeed; the product is checked after.
  if (total && micro && !steps) {
    steps = *total / *micro / group_size;
  } else if (total && !micro && steps) {
    micro = *total / group_size / *steps;
  } else if (total && !micro) {
    steps = 1;
    micro = *total / group_size;
  } else if (!total) {
    if (!steps) steps = 1;
    total = *micro * *steps * group_size;
  }
  const BatchTriple triple{*total, *micro, *steps};
  if (*total > 0 && *micro > 0 && *steps > 0 && *total == *micro * *steps * group_size) {
    return triple;
  }
  why = fmt::format(
      "train_batch_size {} is not train_micro_batch_size_per_gpu {} x gradient_accumulation_steps "
      "{} x group size {}",
      *total, *micro, *steps, group_size);
  return std::nullopt;
}

}  // namespace dstune
