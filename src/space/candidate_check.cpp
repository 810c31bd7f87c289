#include "candidate_check.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/core/knobs.hpp"

namespace dstune {

namespace {

using Found = std::vector<Problem>;

bool is_below(const std::string& pointer, const std::string& ancestor) {
  return pointer == ancestor || pointer.starts_with(ancestor + "/");
}

class CandidateCheck {
 public:
  CandidateCheck(const JobSpec& job, const Expansion& expansion, json::Problems& problems)
      : job_(&job), problems_(&problems), first_(expansion.base), last_(expansion.base) {
    for (const auto& dimension : expansion.dimensions) {
      if (dimension.kind != Dimension::Kind::knob) continue;
      dimensions_.push_back(&dimension);
      last_[json::Value::json_pointer(dimension.pointer)] = dimension.candidates.back();
      if (dimension.pointer == "/zero_optimization/stage") stages_ = &dimension;
    }
  }

  void run() {
    check_fixed();
    for (const auto* dimension : dimensions_) {
      refuse_unbuilt(*dimension);
      for (std::size_t index = 0; index < dimension->candidates.size(); ++index) {
        check(*dimension, index);
      }
    }
  }

 private:
  [[nodiscard]] Found problems_of(const json::Value& config) const {
    json::Problems found;
    read_training_config(json::Node(*job_->document, config, ""), found);
    return found.all();
  }

  /// The problems that `config` has at every stage and that are among `common`, where given.
  void keep_common(json::Value config, bool vary_stage, std::optional<Found>& common) const {
    const std::size_t num_stages = stages_ && vary_stage ? stages_->candidates.size() : 1;
    for (std::size_t index = 0; index < num_stages; ++index) {
      if (common && common->empty()) return;
      if (stages_ && vary_stage) {
        config[json::Value::json_pointer(stages_->pointer)] = stages_->candidates[index];
      }
      const auto found = problems_of(config);
      if (!common) {
        common = found;
        continue;
      }
      std::erase_if(*common, [&](const Problem& problem) {
        return std::find(found.begin(), found.end(), problem) == found.end();
      });
    }
  }

  void check_fixed() {
    std::optional<Found> common;
    keep_common(first_, true, common);
    keep_common(last_, true, common);
    for (const auto& problem : *common) {
      const bool is_of_dimension =
          std::any_of(dimensions_.begin(), dimensions_.end(), [&](const Dimension* dimension) {
            return is_below(problem.pointer, dimension->pointer);
          });
      if (!is_of_dimension) problems_->add(problem);
    }
  }

  void check(const Dimension& dimension, std::size_t index) {
    std::optional<Found> common;
    for (const auto* rest : {&first_, &last_}) {
      auto config = *rest;
      config[json::Value::json_pointer(dimension.pointer)] = dimension.candidates[index];
      keep_common(std::move(config), &dimension != stages_, common);
    }
    for (auto problem : *common) {
      if (!is_below(problem.pointer, dimension.pointer)) continue;
      problem.pointer = dimension.origins[index] + problem.pointer.substr(dimension.pointer.size());
      problem.line = job_->document->line(problem.pointer);
      if (dimension.origins[index] != reported_origin_ || problem.message != reported_message_) {
        problems_->add(problem);
      }
      reported_origin_ = dimension.origins[index];
      reported_message_ = problem.message;
    }
  }

  void refuse_unbuilt(const Dimension& dimension) {
    const auto& candidates = dimension.candidates;
    const bool differs = std::any_of(candidates.begin(), candidates.end(), [&](const auto& value) {
      return value != candidates.front();
    });
    if (!differs) return;
    refuse_unbuilt_knob(dimension, dimension.pointer);
    std::vector<std::string> names;
    for (const auto& candidate : candidates) {
      if (!candidate.is_object()) continue;
      for (const auto& [key, value] : candidate.items()) {
        if (std::find(names.begin(), names.end(), key) != names.end()) continue;
        names.push_back(key);
        refuse_unbuilt_knob(dimension, json::append_pointer(dimension.pointer, key));
      }
    }
  }

  void refuse_unbuilt_knob(const Dimension& dimension, const std::string& pointer) {
    const Knob* const knob = find_knob(pointer);
    if (knob == nullptr || knob->effect != KnobEffect::not_built) return;
    problems_->add({job_->document->file(), dimension.pointer,
                    job_->document->line(dimension.pointer),
                    fmt::format("{} is not part of the step measured here yet, so that its "
                                "candidates can not be told apart: give one value",
                                pointer.substr(pointer.rfind('/') + 1))});
  }

  const JobSpec* job_;
  json::Problems* problems_;
  json::Value first_, last_;  ///< configs with each dimension's first and last candidate
  std::vector<const Dimension*> dimensions_;
  const Dimension* stages_ = nullptr;
  std::string reported_origin_, reported_message_;  ///< objects of one element share its place
};

}  // namespace

std::string batch_limit_reason(const TuningOptions& tuning, std::int64_t train_batch_size) {
  if (tuning.max_train_batch_size && train_batch_size > *tuning.max_train_batch_size) {
    return fmt::format("train_batch_size {} is above max_train_batch_size {}", train_batch_size,
                       *tuning.max_train_batch_size);
  }
  if (train_batch_size < tuning.min_train_batch_size) {
    return fmt::format("train_batch_size {} is below min_train_batch_size {}", train_batch_size,
                       tuning.min_train_batch_size);
  }
  return "";
}

void check_candidates(const JobSpec& job, const Expansion& expansion, json::Problems& problems) {
  CandidateCheck(job, expansion, problems).run();
}

}  // namespace dstune
