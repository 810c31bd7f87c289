#include "micro_batch.hpp"

#include "dstune/kernels/kernels.hpp"
#include "dstune/train/executor.hpp"

namespace dstune {

std::int32_t reference_token(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                             std::int64_t position, std::int64_t vocabulary) {
  // Streams below 2^32 are the weights'.
  const std::uint64_t stream = (std::uint64_t{1} << 32) + static_cast<std::uint64_t>(step);
  const std::uint64_t index =
      (static_cast<std::uint64_t>(sample) << 32) + static_cast<std::uint64_t>(position);
  const std::uint64_t u = kernels::counter_hash(seed, stream, index) >> 43;
  // floor(V·u² / 2^42) in halves, since V·u² may need more than 64 bits.
  const std::uint64_t square = u * u;
  const std::uint64_t low = square & ((std::uint64_t{1} << 21) - 1);
  const auto v = static_cast<std::uint64_t>(vocabulary);
  return static_cast<std::int32_t>((v * (square >> 21) + ((v * low) >> 21)) >> 21);
}

std::int64_t reference_masked_position(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                                       std::int64_t number, std::int64_t count,
                                       std::int64_t sequence_length) {
  // Streams from 2^33 on are the masks'.
  const std::uint64_t stream = (std::uint64_t{1} << 33) + static_cast<std::uint64_t>(step);
  const std::uint64_t index =
      (static_cast<std::uint64_t>(sample) << 32) + static_cast<std::uint64_t>(number);
  const std::uint64_t u = kernels::counter_hash(seed, stream, index) >> 32;
  const std::int64_t first = number * sequence_length / count;
  const std::int64_t end = (number + 1) * sequence_length / count;
  return first + static_cast<std::int64_t>((static_cast<std::uint64_t>(end - first) * u) >> 32);
}

}  // namespace dstune

namespace dstune::train {

MicroBatch::MicroBatch(const StepPlan& plan, std::uint64_t seed)
    : seed_(seed),
      objective_(plan.model.architecture.objective),
      masked_(targets_per_sequence(plan.model, plan.config.sequence_length)),
      group_size_(plan.group_size),
      group_rank_(plan.group_rank),
      samples_(plan.config.micro_batch),
      sequence_(plan.config.sequence_length),
      vocabulary_(plan.model.vocab_size) {}

void MicroBatch::fill(std::int64_t step, std::int64_t micro_step, Tokens to) const {
  const std::int64_t first = (micro_step * group_size_ + group_rank_) * samples_;
  for (std::int64_t i = 0; i < samples_; ++i) {
    const Tokens row{to.tokens + i * sequence_, to.targets + i * sequence_};
    if (objective_ == Objective::next_token) {
      fill_next_tokens(step, first + i, row);
    } else {
      fill_masked_tokens(step, first + i, row);
    }
  }
}

void MicroBatch::fill_next_tokens(std::int64_t step, std::int64_t sample, Tokens to) const {
  std::int32_t token = reference_token(seed_, step, sample, 0, vocabulary_);
  for (std::int64_t position = 0; position < sequence_; ++position) {
    to.tokens[position] = token;
    token = reference_token(seed_, step, sample, position + 1, vocabulary_);
    to.targets[position] = token;
  }
}

void MicroBatch::fill_masked_tokens(std::int64_t step, std::int64_t sample, Tokens to) const {
  for (std::int64_t position = 0; position < sequence_; ++position) {
    to.tokens[position] = reference_token(seed_, step, sample, position, vocabulary_);
    to.targets[position] = -1;
  }
  for (std::int64_t number = 0; number < masked_; ++number) {
    const std::int64_t at =
        reference_masked_position(seed_, step, sample, number, masked_, sequence_);
    to.targets[at] = to.tokens[at];
    to.tokens[at] = static_cast<std::int32_t>(vocabulary_ - 1);
  }
}

}  // namespace dstune::train
