#include "executor/step_inputs.hpp"

#include <algorithm>
#include <cmath>

#include "dstune/kernels/kernels.hpp"
#include "dstune/train/executor.hpp"

namespace dstune {

namespace {

/// Streams below 2^32 are the weights', from there on the tokens', from 2^33 on the masks'.
std::uint64_t hash_of_step(std::uint64_t seed, std::uint64_t first_stream, std::int64_t step,
                           std::int64_t sample, std::int64_t number) {
  const std::uint64_t index =
      (static_cast<std::uint64_t>(sample) << 32) + static_cast<std::uint64_t>(number);
  return kernels::counter_hash(seed, first_stream + static_cast<std::uint64_t>(step), index);
}

/// Places in an arena one after another, from a multiple of 256 on each.
class Places {
 public:
  template <class T>
  std::int64_t add(std::int64_t count) {
    const std::int64_t begin = end_bytes_;
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    end_bytes_ +=
        (bytes + tensor_alignment_bytes - 1) / tensor_alignment_bytes * tensor_alignment_bytes;
    return begin;
  }
  [[nodiscard]] std::int64_t end_bytes() const { return end_bytes_; }

 private:
  std::int64_t end_bytes_ = 0;
};

template <class T>
T* at(const Arena& arena, std::int64_t offset_bytes) {
  return reinterpret_cast<T*>(arena.base() + offset_bytes);
}

constexpr std::int64_t double_bytes = sizeof(double);
constexpr int num_sums = 2;
/// The loss scale rises and falls by this factor.
constexpr double scale_factor = 2;

}  // namespace

std::int32_t reference_token(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                             std::int64_t position, std::int64_t vocabulary) {
  const std::uint64_t u = hash_of_step(seed, std::uint64_t{1} << 32, step, sample, position) >> 43;
  // floor(V·u² / 2^42) in halves, since V·u² may need more than 64 bits.
  const std::uint64_t square = u * u;
  const std::uint64_t low = square & ((std::uint64_t{1} << 21) - 1);
  const auto v = static_cast<std::uint64_t>(vocabulary);
  return static_cast<std::int32_t>((v * (square >> 21) + ((v * low) >> 21)) >> 21);
}

std::int64_t reference_masked_position(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                                       std::int64_t number, std::int64_t count,
                                       std::int64_t sequence_length) {
  const std::uint64_t u = hash_of_step(seed, std::uint64_t{1} << 33, step, sample, number) >> 32;
  const std::int64_t first = number * sequence_length / count;
  const std::int64_t end = (number + 1) * sequence_length / count;
  return first + static_cast<std::int64_t>((static_cast<std::uint64_t>(end - first) * u) >> 32);
}

namespace train {

void MicroBatch::fill(std::int64_t step, std::int64_t micro_step, Tokens to) const {
  const std::int64_t samples = plan_.config.micro_batch;
  const std::int64_t sequence = plan_.config.sequence_length;
  const std::int64_t first = (micro_step * plan_.group_size + plan_.group_rank) * samples;
  for (std::int64_t i = 0; i < samples; ++i) {
    const Tokens row{to.tokens + i * sequence, to.targets + i * sequence};
    if (plan_.model.architecture.objective == Objective::next_token) {
      fill_next_tokens(step, first + i, row);
    } else {
      fill_masked_tokens(step, first + i, row);
    }
  }
}

void MicroBatch::fill_next_tokens(std::int64_t step, std::int64_t sample, Tokens to) const {
  const std::int64_t vocabulary = plan_.model.vocab_size;
  std::int32_t token = reference_token(seed_, step, sample, 0, vocabulary);
  for (std::int64_t position = 0; position < plan_.config.sequence_length; ++position) {
    to.tokens[position] = token;
    token = reference_token(seed_, step, sample, position + 1, vocabulary);
    to.targets[position] = token;
  }
}

void MicroBatch::fill_masked_tokens(std::int64_t step, std::int64_t sample, Tokens to) const {
  const std::int64_t vocabulary = plan_.model.vocab_size;
  const std::int64_t sequence = plan_.config.sequence_length;
  for (std::int64_t position = 0; position < sequence; ++position) {
    to.tokens[position] = reference_token(seed_, step, sample, position, vocabulary);
    to.targets[position] = -1;
  }
  const std::int64_t masked = targets_per_sequence(plan_.model, sequence);
  for (std::int64_t number = 0; number < masked; ++number) {
    const std::int64_t at =
        reference_masked_position(seed_, step, sample, number, masked, sequence);
    to.targets[at] = to.tokens[at];
    to.tokens[at] = static_cast<std::int32_t>(vocabulary - 1);
  }
}

StepInputs::StepInputs(const StepPlan& plan, Device& device, std::uint64_t seed, int first_event)
    : table_(device.kernels()),
      queues_(device.queues()),
      micro_batch_(plan, seed),
      angles_(rotary_angles(plan.model, plan.config.sequence_length)),
      local_angles_(local_rotary_angles(plan.model)),
      sum_doubles_(device.kernels().sum_doubles),
      first_event_(first_event) {
  const std::int64_t rows = micro_batch_.rows();
  const std::int64_t frequencies = num_frequencies();
  Places places;
  const std::int64_t tokens = places.add<std::int32_t>(2 * rows);
  const std::int64_t angles = places.add<double>(frequencies);
  const std::int64_t sums = places.add<double>(num_sums * sum_doubles_);
  const std::int64_t norm = places.add<double>(1);
  const std::int64_t gradient_scale = places.add<float>(1);
  const std::int64_t squares_of_ranks = places.add<double>(plan.group_size);
  device.input_arena().prepare(places.end_bytes());
  const std::int64_t second_tokens = places.add<std::int32_t>(2 * rows);
  device.host_input_arena().prepare(places.end_bytes());

  const auto tokens_at = [&](const Arena& arena, std::int64_t offset_bytes) {
    auto* const first = at<std::int32_t>(arena, offset_bytes);
    return MicroBatch::Tokens{first, first + rows};
  };
  device_ = tokens_at(device.input_arena(), tokens);
  frequencies_ = at<double>(device.input_arena(), angles);
  sums_ = at<double>(device.input_arena(), sums);
  squares_of_ranks_ = at<double>(device.input_arena(), squares_of_ranks);
  norm_ = at<double>(device.input_arena(), norm);
  gradient_scale_ = at<float>(device.input_arena(), gradient_scale);
  const Arena& host = device.host_input_arena();
  host_ = {tokens_at(host, tokens), tokens_at(host, second_tokens)};
  host_frequencies_ = at<double>(host, angles);
  host_sums_ = at<double>(host, sums);
  host_norm_ = at<double>(host, norm);
}

void StepInputs::begin_training() {
  const auto local = std::ranges::copy(angles_.frequencies, host_frequencies_).out;
  std::ranges::copy(local_angles_.frequencies, local);
  queues_.copy(frequencies_, host_frequencies_, num_frequencies() * double_bytes);
}

std::int64_t StepInputs::num_frequencies() const {
  return static_cast<std::int64_t>(angles_.frequencies.size() + local_angles_.frequencies.size());
}

void StepInputs::begin_step() {
  table_.zero(sums_, static_cast<std::size_t>(num_sums * sum_doubles_ * double_bytes));
}

void StepInputs::begin_micro_step(std::int64_t step, std::int64_t micro_step) {
  const MicroBatch::Tokens& made = host_[next_];
  const int sent = first_event_ + static_cast<int>(next_);
  next_ = 1 - next_;
  queues_.finish(sent);
  micro_batch_.fill(step, micro_step, made);
  // Targets lie behind the tokens.
  queues_.copy(device_.tokens, made.tokens,
               2 * micro_batch_.rows() * static_cast<std::int64_t>(sizeof(std::int32_t)));
  queues_.record(sent);
}

void StepInputs::send_sums() {
  queues_.copy(host_sums_, sums_, num_sums * sum_doubles_ * double_bytes);
  queues_.record(first_event_ + 2);
}

StepInputs::Sums StepInputs::wait_for_sums() {
  queues_.finish(first_event_ + 2);
  return {host_sums_[0], host_sums_[sum_doubles_]};
}

void StepInputs::send_norm() {
  queues_.copy(host_norm_, norm_, double_bytes);
}

LossScaler::LossScaler(const TrainingConfig& config)
    : rules_(config.loss_scale),
      dynamic_(config.precision == Precision::fp16 && rules_.fixed == 0),
      in_zero_optimizer_(config.zero_stage > 0),
      hysteresis_(rules_.hysteresis) {
  if (config.precision != Precision::fp16) return;
  scale_ = dynamic_ ? std::exp2(static_cast<double>(rules_.initial_power)) : rules_.fixed;
}

LossScaler::Verdict LossScaler::end_step(bool overflow) {
  Verdict verdict = overflow ? Verdict::skip : Verdict::update;
  if (dynamic_) {
    if (overflow) {
      verdict = fall();
      last_overflow_ = step_;
    } else {
      keep_or_raise();
    }
  }
  ++step_;
  return verdict;
}

LossScaler::Verdict LossScaler::fall() {
  if (in_zero_optimizer_ && rules_.hysteresis != 1 && hysteresis_ != 1) {
    --hysteresis_;
    return Verdict::skip;
  }
  if (in_zero_optimizer_ && scale_ == rules_.minimum) return Verdict::exhausted;
  scale_ = std::max(scale_ / scale_factor, rules_.minimum);
  return Verdict::skip;
}

void LossScaler::keep_or_raise() {
  if (rules_.consecutive_hysteresis) hysteresis_ = rules_.hysteresis;
  const std::int64_t steps_without = step_ - last_overflow_ - 1;
  if (steps_without <= 0 || steps_without % rules_.window != 0) return;
  hysteresis_ = rules_.hysteresis;
  scale_ *= scale_factor;
}

}  // namespace train
}  // namespace dstune
