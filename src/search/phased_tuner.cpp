#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"
#include "measured_memory.hpp"
#include "size_search.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// A ZeRO stage on groups of one shape.
struct Stage {
  GroupShape shape;
  int zero_stage = 0;
  std::vector<SizeChain> chains;  ///< in the space's order
};

std::vector<Stage> stages_of(const PlannedSpace& space) {
  std::map<std::pair<GroupShape, int>, std::vector<SizeChain>> chains;
  for (SizeChain& chain : size_chains(space)) {
    const Experiment& experiment = space.experiment(chain.front());
    chains[{experiment.shape, experiment.config.zero_stage}].push_back(std::move(chain));
  }
  std::vector<Stage> stages;
  for (auto& [key, of_stage] : chains)
    stages.push_back({key.first, key.second, std::move(of_stage)});
  return stages;
}

class PhasedTuner : public Tuner {
 public:
  PhasedTuner(const std::string& type, const PlannedSpace& space, const TuningOptions& options)
      : type_(type),
        space_(space),
        options_(options),
        memory_(space, options.policy->memory),
        failures_(options.metric, options.early_stopping.value_or(0)),
        trials_left_(options.num_trials ? static_cast<std::size_t>(*options.num_trials)
                                        : SIZE_MAX) {
    stages_ = stages_of(space);
    if (!stages_.empty()) begin_sizes();
  }

  std::optional<std::size_t> next() override {
    while (!is_done() && trials_left_ > 0) {
      const auto member = next_of_phase();
      if (!member) return std::nullopt;
      if (const auto known = known_.find(*member); known != known_.end()) {
        tell(*member, known->second);
        continue;
      }
      if (std::string refusal = refusal_of(*member); !refusal.empty()) {
        reasons_[*member] = {std::move(refusal), PruneKind::excluded};
        withdraw(*member);
        continue;
      }
      if (*member != space_.baseline) --trials_left_;  // of which the cap knows already
      running_.push_back(*member);
      return member;
    }
    return std::nullopt;
  }

  void observe(std::size_t member, const Observation& observation) override {
    require(member < space_.members.size(), "a member of the planned space");
    known_[member] = observation;
    memory_.observe(member, observation);
    if (std::erase(running_, member) > 0) tell(member, observation);
    // From the journal: told when it is asked for.
    refuse_sizes();
  }

  void revise(std::size_t member, const Observation& observation) override {
    const auto known = known_.find(member);
    if (known == known_.end()) return;
    known->second = observation;
    if (stage_ == stages_.size()) return;
    const std::size_t place = place_of(member);
    if (place == members_of_phase().size()) return;  // of a stage before: only a size is used
    if (grid_)
      grid_->revise(place, observation);
    else
      sizes_->revise(place, score_of(observation));
  }

  [[nodiscard]] bool is_done() const override {
    return stage_ == stages_.size() || trials_left_ == 0 || has_only_failed();
  }
  /// Sizes are chosen by how others of them ended.
  [[nodiscard]] std::size_t max_waiting() const override {
    return grid_ ? grid_->max_waiting() : 0;
  }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    for (const Stage& stage : stages_) {
      for (const SizeChain& chain : stage.chains)
        for (const std::size_t member : chain)
          if (!known_.contains(member))
            all.push_back(skipped_for(member, reason_of(stage, member)));
    }
    std::ranges::sort(all, {}, &Skipped::member);
    return all;
  }

  /// The grid of the stage under way says it. Other stages may be passed over. In one that is not,
  /// each configuration takes some sizes, and the first of them more.
  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    ExpectedRuns left;
    for (std::size_t stage = stage_; stage < stages_.size(); ++stage) {
      const double usual = usual_runs(stages_[stage]);
      if (stage > stage_) {
        left += {usual, 0, usual};
      } else if (grid_) {
        left += grid_->expected_left().value_or(ExpectedRuns{});
      } else {
        const auto is_known = [&](std::size_t member) { return known_.contains(member); };
        const auto known = static_cast<double>(std::ranges::count_if(chain(), is_known));
        left += {std::max(0.0, usual - known), 0, std::max(0.0, usual - known)};
      }
    }
    return left.at_most(static_cast<double>(trials_left_));
  }

 private:
  [[nodiscard]] double usual_runs(const Stage& stage) const {
    const int of_grid = options_.num_tuning_micro_batch_sizes;
    double runs = 0;
    for (const SizeChain& chain : stage.chains)
      runs += std::min<double>(static_cast<double>(chain.size()),
                               &chain == &stage.chains.front() ? of_grid + 2 : of_grid);
    return runs;
  }

  /// Larger is better; nothing where it did not run to its end.
  [[nodiscard]] std::optional<double> score_of(const Observation& observation) const {
    const auto value = observation.result();
    return value && is_minimised(options_.metric) ? 1 / *value : value;
  }

  /// A search in which nothing ever runs.
  [[nodiscard]] bool has_only_failed() const { return !best_score_ && failures_.is_due(); }

  std::optional<std::size_t> next_of_phase() {
    while (stage_ < stages_.size()) {
      if (grid_) {
        if (const auto place = grid_->next()) return grid_members_[*place];
        if (!grid_->is_done() || !running_.empty()) return std::nullopt;
        end_stage();
      } else {
        if (const auto place = sizes_->next()) return chain()[*place];
        if (!sizes_->is_done()) return std::nullopt;
        end_sizes();
      }
    }
    return std::nullopt;
  }

  void tell(std::size_t member, const Observation& observation) {
    const auto score = score_of(observation);
    failures_.observe(member,
                      observation.value ? std::optional(observation.value->value) : std::nullopt);
    if (score && (!best_score_ || *score > *best_score_)) best_score_ = score;
    const std::size_t place = place_of(member);
    if (grid_)
      grid_->observe(place, observation);
    else
      sizes_->observe(place, score);
  }

  /// It was asked for, and is known to run out of memory.
  void withdraw(std::size_t member) override {
    const std::size_t place = place_of(member);
    if (grid_)
      grid_->withdraw(place);
    else
      sizes_->observe(place, std::nullopt);
  }

  [[nodiscard]] const std::vector<std::size_t>& members_of_phase() const {
    return grid_ ? grid_members_ : chain();
  }
  /// Their number where it is none of them.
  [[nodiscard]] std::size_t place_of(std::size_t member) const {
    const auto& members = members_of_phase();
    return static_cast<std::size_t>(std::ranges::find(members, member) - members.begin());
  }

  /// Says why it surely runs out of memory, by measurements; empty if a plan says so, or nobody.
  [[nodiscard]] std::string refusal_of(std::size_t member) const {
    return space_.is_unplanned ? memory_.refusal(member) : "";
  }

  /// The chain's sizes that surely run out of memory are not tried.
  void refuse_sizes() {
    if (!space_.is_unplanned || grid_ || !sizes_ || stage_ == stages_.size()) return;
    for (std::size_t place = 0; place < chain().size(); ++place)
      if (!known_.contains(chain()[place]) && !refusal_of(chain()[place]).empty())
        return sizes_->refuse_from(place);
  }

  [[nodiscard]] const SizeChain& chain() const { return stages_[stage_].chains[chain_]; }

  /// From the largest of the stage before, which runs here if it ran there.
  void begin_sizes() {
    std::vector<std::int64_t> sizes;
    std::size_t start = 0;
    for (std::size_t place = 0; place < chain().size(); ++place) {
      sizes.push_back(space_.micro_batch(chain()[place]));
      if (stages_[stage_].shape == largest_shape_ && sizes.back() <= largest_) start = place;
    }
    sizes_.emplace(std::move(sizes), options_.num_tuning_micro_batch_sizes, start,
                   space_.is_unplanned, options_.policy->sizes);
    refuse_sizes();
  }

  /// The configuration's sizes are known: the stage's other configurations are tried with the best
  /// of them. If none ran, another configuration may.
  void end_sizes() {
    if (!sizes_->best()) return leave_chain();
    const GroupShape& shape = stages_[stage_].shape;
    const std::int64_t largest = space_.micro_batch(chain()[*sizes_->largest()]);
    if (shape != largest_shape_ || largest > largest_) largest_ = largest;
    largest_shape_ = shape;
    note_sizes();
    // There was room for all sizes of the configuration unless one failed: the others paid no more.
    begin_grid(sizes_->smallest_failed() ? largest : space_.micro_batch(chain().back()));
  }

  void leave_chain() {
    const auto failed = sizes_->smallest_failed();
    for (const std::size_t member : chain()) {
      const std::string refusal = refusal_of(member);
      reasons_[member] = {!refusal.empty()
                              ? refusal
                              : fmt::format("the smaller micro-batch {} did not run",
                                            space_.micro_batch(chain()[failed.value_or(0)])),
                          PruneKind::excluded};
    }
    if (++chain_ < stages_[stage_].chains.size())
      begin_sizes();
    else
      end_stage();
  }

  /// Begins the grid of all that is known of the chain, and of the others behind it in the sizes
  /// that were its best. `largest`: the micro-batch that the chain has room for.
  void begin_grid(std::int64_t largest) {
    std::vector<std::int64_t> sizes;
    for (const std::size_t place : sizes_->sizes_to_try())
      sizes.push_back(space_.micro_batch(chain()[place]));
    std::optional<std::size_t> failed;
    if (const auto place = sizes_->smallest_failed()) failed = chain()[*place];
    grid_members_.clear();
    for (const std::size_t member : chain())
      if (known_.contains(member)) grid_members_.push_back(member);
    const std::size_t num_known = grid_members_.size();
    const std::vector<SizeChain>& chains = stages_[stage_].chains;
    for (std::size_t at = chain_ + 1; at < chains.size(); ++at) {
      for (const std::size_t member : chains[at]) {
        // A member with more room is worth a larger size.
        const bool has_more_room =
            space_.is_unplanned
                ? failed && space_.micro_batch(member) == space_.micro_batch(*failed)
                : member == chains[at].back() && space_.micro_batch(member) > largest;
        const auto tried = std::ranges::find(sizes, space_.micro_batch(member));
        if (has_more_room || tried != sizes.end())
          grid_members_.push_back(member);
        else
          reasons_[member] = {fmt::format("micro-batches {} were tried: they were the best of {}",
                                          fmt::join(sizes, ", "),
                                          space_.experiment(chain().front()).name)};
      }
    }
    grid_space_.members.clear();
    for (const std::size_t member : grid_members_)
      grid_space_.members.push_back(space_.members.copy_of(member));
    grid_ = tuner_type(type_).make(grid_space_, options_);
    for (std::size_t place = 0; place < num_known; ++place)
      grid_->observe(place, known_.at(grid_members_[place]));
  }

  void end_stage() {
    if (grid_)
      for (Skipped& one : grid_->skipped())
        reasons_[grid_members_[one.member]] = {std::move(one.reason), one.kind};
    grid_.reset();
    chain_ = 0;
    while (++stage_ < stages_.size()) {
      const std::string violation = violation_of(stages_[stage_]);
      if (violation.empty()) return begin_sizes();
      for (const SizeChain& chain : stages_[stage_].chains)
        for (const std::size_t member : chain) reasons_[member] = {violation};
    }
  }

  /// Says why a stage can not improve on the one before, on groups of the same shape; empty if it
  /// can. It takes less memory for more traffic.
  [[nodiscard]] std::string violation_of(const Stage& stage) const {
    if (stage.shape != largest_shape_) return "";
    const std::int64_t fits = space_.micro_batch(stage.chains.front().back());
    if (fits < largest_)
      return fmt::format("stage {} can not improve: it has room for micro-batch {}, {} ran before",
                         stage.zero_stage, fits, largest_);
    double best = 0;
    double best_here = 0;
    for (const PlannedMember& member : space_.members) {
      const Experiment& experiment = member.planned.experiment;
      const double predicted = ranked_throughput(member.planned.predicted).value_or(0);
      if (member.planned.status != PlanStatus::planned || experiment.shape != stage.shape) continue;
      if (experiment.config.zero_stage < stage.zero_stage) best = std::max(best, predicted);
      if (experiment.config.zero_stage != stage.zero_stage) continue;
      if (predicted == 0) return "";
      best_here = std::max(best_here, predicted);
    }
    if (options_.metric == Metric::latency ||
        best_here >= options_.policy->sizes.relevant_stage * best)
      return "";
    return fmt::format("stage {} can not improve: its best is predicted {:.0f} % below the others'",
                       stage.zero_stage, 100 * (1 - best_here / best));
  }

  /// Notes why the chain's other sizes are not run.
  void note_sizes() {
    const auto failed = sizes_->smallest_failed();
    for (std::size_t place = 0; place < chain().size(); ++place) {
      const std::size_t member = chain()[place];
      if (!known_.contains(member)) reasons_[member] = reason_of_size(place, failed);
    }
  }
  [[nodiscard]] SkipReason reason_of_size(std::size_t place,
                                          std::optional<std::size_t> failed) const {
    if (std::string refusal = refusal_of(chain()[place]); !refusal.empty())
      return {std::move(refusal), PruneKind::excluded};
    if (failed && place > *failed && known_.contains(chain()[*failed]))
      return {fmt::format("the smaller micro-batch {} ended as {}",
                          space_.micro_batch(chain()[*failed]),
                          to_text(known_.at(chain()[*failed]).status)),
              PruneKind::excluded};
    return {fmt::format("micro-batch {} was the best of those tried around it",
                        space_.micro_batch(chain()[*sizes_->best()]))};
  }

  [[nodiscard]] SkipReason reason_of(const Stage& stage, std::size_t member) const {
    if (const auto known = reasons_.find(member); known != reasons_.end()) return known->second;
    if (has_only_failed()) return failures_.reason();
    if (trials_left_ == 0) return past_num_trials();
    return {fmt::format("the search did not come to stage {}", stage.zero_stage)};
  }

  std::string type_;
  const PlannedSpace& space_;
  TuningOptions options_;
  std::vector<Stage> stages_;
  std::unordered_map<std::size_t, Observation> known_;
  std::vector<std::size_t> running_;
  std::unordered_map<std::size_t, SkipReason> reasons_;  ///< of those that are not run
  MeasuredMemory memory_;
  EarlyStopping failures_;
  std::size_t trials_left_;
  std::optional<double> best_score_;
  // The state of the search: a stage, and its chain whose sizes are searched, or then its grid.
  std::size_t stage_ = 0;
  std::size_t chain_ = 0;
  std::optional<SizeSearch> sizes_;
  PlannedSpace grid_space_;
  std::vector<std::size_t> grid_members_;
  std::unique_ptr<Tuner> grid_;
  std::int64_t largest_ = 0;  ///< micro-batch that ran, on groups of the shape
  GroupShape largest_shape_{0, 0};
};

}  // namespace

std::unique_ptr<Tuner> make_phased_tuner(const std::string& type, const PlannedSpace& space,
                                         const TuningOptions& options) {
  return std::make_unique<PhasedTuner>(type, space, options);
}

}  // namespace dstune
