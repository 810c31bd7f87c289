#include "product_members.hpp"

#include <algorithm>
#include <utility>

namespace dstune {

using Kind = Dimension::Kind;

namespace {

/// How far one step of each dimension goes in a member's number; the last goes by 1.
std::vector<std::uint64_t> strides_of(const Product& product) {
  const auto& dimensions = product.dimensions;
  std::vector<std::uint64_t> strides(dimensions.size(), 1);
  for (std::size_t index = dimensions.size(); index-- > 1;)
    strides[index - 1] = strides[index] * dimensions[index].candidates.size();
  return strides;
}

}  // namespace

SpacePart::SpacePart(Product made, std::uint64_t begin, bool with_shape, bool with_recompute)
    : product(std::move(made)),
      first(begin),
      strides(strides_of(product)),
      depths(depths_of(product)),
      names(product, with_shape, with_recompute) {
  size = strides.front() * product.dimensions.front().candidates.size();
  for (std::size_t index = 0; index < product.dimensions.size(); ++index) {
    places.emplace_back(product.dimensions[index].pointer);
    if (product.dimensions[index].kind == Kind::micro_batch) micro_batch = index;
  }
}

Digits SpacePart::digits_of(std::uint64_t number) const {
  Digits digits;
  digits.reserve(strides.size());
  for (std::size_t index = 0; index < strides.size(); ++index)
    digits.push_back((number - first) / strides[index] %
                     product.dimensions[index].candidates.size());
  return digits;
}

std::optional<std::uint64_t> SpacePart::micro_batch_chain(std::uint64_t number,
                                                          const Digits& digits) const {
  if (!product.is_micro_batch_searched) return std::nullopt;
  return number - digits[micro_batch] * strides[micro_batch];
}

const SpacePart& SpaceParts::part_of(std::uint64_t number) const {
  std::size_t index = all.size() - 1;
  while (all[index].first > number) --index;
  return all[index];
}

MemberCursor::MemberCursor(const KnobTable& table, const Product& product)
    : product_(&product), digits_(product.dimensions.size(), 0), settings_(table) {
  settings_.apply(product.settings);
  for (const auto& dimension : product.dimensions)
    if (dimension.kind == Kind::knob) settings_.apply(dimension.settings.front());
}

bool MemberCursor::advance() {
  bool is_knob_changed = false;
  for (std::size_t index = digits_.size(); index-- > 0;) {
    const auto& dimension = product_->dimensions[index];
    const bool is_last = digits_[index] + 1 == dimension.candidates.size();
    const std::size_t next = is_last ? 0 : digits_[index] + 1;
    if (dimension.kind == Kind::knob && next != digits_[index]) {
      settings_.apply(dimension.settings[next]);
      is_knob_changed = true;
    }
    digits_[index] = next;
    if (!is_last) break;
  }
  return is_knob_changed;
}

bool MemberCursor::go_to(const Digits& digits) {
  bool is_knob_changed = false;
  for (std::size_t index = 0; index < digits_.size(); ++index) {
    const auto& dimension = product_->dimensions[index];
    if (dimension.kind != Kind::knob || digits[index] == digits_[index]) continue;
    settings_.apply(dimension.settings[digits[index]]);
    is_knob_changed = true;
  }
  digits_ = digits;
  return is_knob_changed;
}

KnobConfig knob_config(const JobSpec& job, const Settings& settings) {
  KnobConfig knobs{training_config(settings)};
  if (job.takes_any_key()) {
    knobs.ranks_per_micro_batch = sequence_ranks(settings);
    knobs.config.ranks_per_batch = knobs.ranks_per_micro_batch * tensor_ranks(settings);
  }
  return knobs;
}

BatchTriple take_batch(const JobSpec& job, const Product& product, const Digits& digits,
                       std::int64_t ranks_per_micro_batch, const GroupShape& shape,
                       TrainingConfig& config, std::string& why) {
  std::optional<std::int64_t> total, micro, steps;
  for (std::size_t index = 0; index < digits.size(); ++index) {
    const auto& dimension = product.dimensions[index];
    if (dimension.kind == Kind::train_batch_size) total = size_of(dimension, digits[index]);
    if (dimension.kind == Kind::micro_batch) micro = size_of(dimension, digits[index]);
    if (dimension.kind == Kind::accumulation_steps) steps = size_of(dimension, digits[index]);
  }
  // The engine itself says so if ranks do not divide.
  const std::int64_t group_size = std::max<std::int64_t>(1, shape.size() / ranks_per_micro_batch);
  auto triple = resolve_batch(total, micro, steps, group_size, why);
  if (triple) why = batch_limit_reason(job.tuning, triple->train_batch_size);
  if (!triple) triple = {*total, *micro, steps.value_or(*total / *micro / group_size)};
  config.micro_batch = triple->micro_batch;
  config.accumulation_steps = triple->accumulation_steps;
  place_on(shape, config);
  return *triple;
}

Experiment experiment_of(const JobSpec& job, const SpacePart& part, const Digits& digits,
                         const GroupShape& shape, const TrainingConfig& config,
                         std::int64_t train_batch_size) {
  Experiment experiment{"", part.product.base, shape, config};
  auto& ds_config = experiment.ds_config;
  for (std::size_t index = 0; index < digits.size(); ++index) {
    const auto& dimension = part.product.dimensions[index];
    if (dimension.kind == Kind::knob)
      ds_config[part.places[index]] = dimension.candidates[digits[index]];
  }
  ds_config["train_batch_size"] = train_batch_size;
  ds_config["train_micro_batch_size_per_gpu"] = config.micro_batch;
  ds_config["gradient_accumulation_steps"] = config.accumulation_steps;
  experiment.written_out = write_out_defaults(job.deepspeed_version, config.zero_stage, ds_config);
  return experiment;
}

}  // namespace dstune
