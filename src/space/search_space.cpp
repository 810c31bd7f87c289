#include "dstune/space/search_space.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "candidate_check.hpp"
#include "dstune/core/knobs.hpp"
#include "effect.hpp"
#include "names.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

std::string last_part(const std::string& pointer) {
  return pointer.substr(pointer.rfind('/') + 1);
}

/// Keys of what differs: those inside candidates that are objects, else the dimension's own.
void add_name_keys(const Dimension& dimension, std::vector<std::string>& keys) {
  const auto add = [&](const std::string& key) {
    if (key != "stage" && std::find(keys.begin(), keys.end(), key) == keys.end()) {
      keys.push_back(key);
    }
  };
  add(last_part(dimension.pointer));
  for (const auto& candidate : dimension.candidates) {
    if (!candidate.is_object()) continue;
    for (const auto& [key, value] : candidate.items()) add(key);
  }
}

std::optional<std::int64_t> size_of(const json::Value& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<std::int64_t>();
}

}  // namespace

SearchSpace::SearchSpace(const JobSpec& job) : job_(&job) {
  json::Problems problems;
  expansion_ = expand(job, problems);
  problems.check();

  const auto& dimensions = expansion_.dimensions;
  strides_.assign(dimensions.size(), 1);
  for (std::size_t index = dimensions.size(); index-- > 1;) {
    strides_[index - 1] = strides_[index] * dimensions[index].candidates.size();
  }
  for (const auto& dimension : dimensions) {
    places_.emplace_back(dimension.pointer);
    const bool names_itself =
        dimension.kind == Kind::train_batch_size ||
        (dimension.kind == Kind::knob && dimension.pointer != "/zero_optimization/stage");
    if (!names_itself || dimension.candidates.size() == 1) continue;
    has_short_names_ = false;
    add_name_keys(dimension, name_keys_);
  }
}

std::uint64_t SearchSpace::size() const {
  return strides_.front() * expansion_.dimensions.front().candidates.size();
}

std::vector<Member> SearchSpace::members() const {
  std::vector<Member> all;
  visit(size(), [&](Member&& found) {
    all.push_back(std::move(found));
    return true;
  });
  return all;
}

SearchSpace::Indices SearchSpace::decode(std::uint64_t number) const {
  Indices indices(strides_.size());
  for (std::size_t index = 0; index < strides_.size(); ++index) {
    indices[index] = number / strides_[index];
    number %= strides_[index];
  }
  return indices;
}

Member SearchSpace::member(std::uint64_t number, Seen& seen) const {
  const auto indices = decode(number);
  const auto& dimensions = expansion_.dimensions;
  Member member;
  auto& experiment = member.experiment;
  experiment.ds_config = expansion_.base;
  for (std::size_t index = 0; index < dimensions.size(); ++index) {
    if (dimensions[index].kind != Kind::knob || indices[index] == 0) continue;
    experiment.ds_config[places_[index]] = dimensions[index].candidates[indices[index]];
  }
  const auto& knobs = knobs_of(indices, experiment.ds_config, seen);
  experiment.config = knobs.config;
  experiment.config.sequence_length = job_->sequence_length;
  experiment.shape = job_->shapes[indices.front()];
  experiment.config.recompute = job_->recompute[indices.back()];
  if (!knobs.refusal.empty()) {
    member.is_pruned = true;
    member.reason = knobs.refusal;
  }
  decide_batch(indices, member);
  if (expansion_.is_micro_batch_searched) {
    std::uint64_t chain = number;
    for (std::size_t index = 0; index < dimensions.size(); ++index) {
      if (dimensions[index].kind == Kind::micro_batch) chain -= indices[index] * strides_[index];
    }
    const int next_chain = static_cast<int>(seen.chains.size());
    member.micro_batch_chain = seen.chains.try_emplace(chain, next_chain).first->second;
  }
  experiment.name = name_of(experiment, seen);
  if (!member.is_pruned) prune_twin(member, seen);
  return member;
}

const SearchSpace::Knobs& SearchSpace::knobs_of(const Indices& indices,
                                                const json::Value& ds_config, Seen& seen) const {
  std::uint64_t number = 0;
  for (std::size_t index = 0; index < indices.size(); ++index) {
    if (expansion_.dimensions[index].kind == Kind::knob) {
      number += indices[index] * strides_[index];
    }
  }
  const auto [found, is_new] = seen.knobs.try_emplace(number);
  if (is_new) {
    json::Problems problems;
    found->second.config =
        read_training_config(json::Node(*job_->document, ds_config, ""), problems);
    if (!problems.empty()) {
      const auto& problem = problems.all().front();
      found->second.refusal = problem.pointer + ": " + problem.message;
    }
  }
  return found->second;
}

void SearchSpace::decide_batch(const Indices& indices, Member& member) const {
  std::optional<std::int64_t> total, micro, steps;
  for (std::size_t index = 0; index < indices.size(); ++index) {
    const auto& dimension = expansion_.dimensions[index];
    const auto& candidate = dimension.candidates[indices[index]];
    if (dimension.kind == Kind::train_batch_size) total = size_of(candidate);
    if (dimension.kind == Kind::micro_batch) micro = size_of(candidate);
    if (dimension.kind == Kind::accumulation_steps) steps = size_of(candidate);
  }
  auto& experiment = member.experiment;
  const int group_size = experiment.shape.size();
  std::string why;
  auto triple = resolve_batch(total, micro, steps, group_size, why);
  if (triple) why = batch_limit_reason(job_->tuning, triple->train_batch_size);
  if (!triple) triple = {*total, *micro, steps.value_or(*total / *micro / group_size)};
  if (!why.empty() && !member.is_pruned) {
    member.is_pruned = true;
    member.reason = why;
  }
  experiment.config.micro_batch = triple->micro_batch;
  experiment.config.accumulation_steps = triple->accumulation_steps;
  experiment.ds_config["train_batch_size"] = triple->train_batch_size;
  experiment.ds_config["train_micro_batch_size_per_gpu"] = triple->micro_batch;
  experiment.ds_config["gradient_accumulation_steps"] = triple->accumulation_steps;
}

std::string SearchSpace::name_of(const Experiment& experiment, Seen& seen) const {
  const auto& config = experiment.config;
  std::string name;
  if (has_short_names_) {
    name = fmt::format("z{}_gas{}_tmbspg{}", config.zero_stage, config.accumulation_steps,
                       config.micro_batch);
  } else {
    const auto prefix = fmt::format("z{}_", config.zero_stage);
    name = canonical_name(experiment.ds_config, name_keys_, prefix, false);
  }
  if (job_->shapes.size() > 1) name += fmt::format("_ng{}", experiment.shape.size());
  if (job_->recompute.size() > 1) name += fmt::format("_ar{}", to_text(config.recompute));
  name = folder_safe(name);
  auto unique = name;
  for (int count = 2; !seen.names.insert(unique).second; ++count) {
    unique = fmt::format("{}_{}", name, count);
  }
  return unique;
}

void SearchSpace::prune_twin(Member& member, Seen& seen) const {
  const auto& experiment = member.experiment;
  const Effect effect{effective_config(experiment.config), experiment.shape, experiment.name};
  auto& alike = seen.by_effect[hash_of(effect.config, effect.shape)];
  const auto twin = std::find_if(alike.begin(), alike.end(), [&](const Effect& other) {
    return other.config == effect.config && other.shape == effect.shape;
  });
  if (twin == alike.end()) {
    alike.push_back(effect);
    return;
  }
  member.is_pruned = true;
  member.reason = "runs exactly as " + twin->name;
}

}  // namespace dstune
