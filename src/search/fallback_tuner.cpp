// The search for sizes starts from a micro-batch that is an integer. If it does not run, smaller
// ones take its place, as with DeepSpeed's autotuner: stage by stage, on groups of each shape.
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

class FallbackTuner : public Tuner {
 public:
  FallbackTuner(const std::string& type, const PlannedSpace& space, const TuningOptions& options)
      : type_(type), options_(options), space_(space), searched_(space) {
    for (std::size_t member = 0; member < searched_.members.size(); ++member)
      if (searched_.is_below_lowest(member)) leave_out(member);
    tuner_ = make_plain_tuner(type_, searched_, options_);
  }

  std::optional<std::size_t> next() override {
    auto member = tuner_->next();
    if (!member && may_fall()) {
      fall();
      member = tuner_->next();
    }
    if (!member) return std::nullopt;
    running_.insert(*member);
    ++num_asked_;
    return member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    require(member < space_.members.size(), "a member of the planned space");
    running_.erase(member);
    if (observed_.insert_or_assign(member, observation).second) order_.push_back(member);
    if (is_searched(member)) tuner_->observe(member, observation);
  }

  void withdraw(std::size_t member) override {
    running_.erase(member);
    tuner_->withdraw(member);
  }

  void revise(std::size_t member, const Observation& observation) override {
    const auto known = observed_.find(member);
    if (known == observed_.end()) return;
    known->second = observation;
    if (is_searched(member)) tuner_->revise(member, observation);
  }

  [[nodiscard]] bool is_done() const override { return tuner_->is_done() && !may_fall(); }
  [[nodiscard]] std::size_t max_waiting() const override { return tuner_->max_waiting(); }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    for (Skipped& skipped : tuner_->skipped())
      if (is_searched(skipped.member)) all.push_back(std::move(skipped));
    for (std::size_t member = 0; member < space_.members.size(); ++member) {
      if (space_.status(member) != PlanStatus::planned || is_searched(member) ||
          observed_.contains(member))
        continue;
      if (space_.is_below_lowest(member))
        all.push_back({member, "smaller than the micro-batch that the config asks for",
                       PruneKind::smaller_size});
      else
        all.push_back(
            {member, "the micro-batch that the config asks for did not run", PruneKind::excluded});
    }
    return all;
  }

  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return tuner_->chance_of_better();
  }

  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    return tuner_->expected_left();
  }

  /// The largest smaller size of the config's own that runs, where that one did not.
  [[nodiscard]] std::optional<std::size_t> baseline() const override {
    if (!space_.baseline || !fallen_.contains(stage_of(*space_.baseline))) return std::nullopt;
    std::optional<std::size_t> largest;
    for (const auto& [member, observation] : observed_)
      if (observation.result() && chain_of(member) == chain_of(*space_.baseline) &&
          (!largest || space_.micro_batch(member) > space_.micro_batch(*largest)))
        largest = member;
    return largest;
  }

  [[nodiscard]] std::vector<std::string> notes() const override { return notes_; }

 private:
  using StageOfShape = std::pair<GroupShape, int>;

  [[nodiscard]] StageOfShape stage_of(std::size_t member) const {
    return {space_.shape(member), space_.zero_stage(member)};
  }
  [[nodiscard]] std::optional<std::uint64_t> chain_of(std::size_t member) const {
    return space_.micro_batch_chain(member);
  }
  [[nodiscard]] bool is_searched(std::size_t member) const {
    return searched_.status(member) == PlanStatus::planned;
  }
  void leave_out(std::size_t member) {
    if (is_searched(member))
      searched_.decide(member, PlanStatus::pruned, PruneKind::not_chosen, "");
  }

  /// Stages whose sizes all ended without a result, and that have smaller ones.
  [[nodiscard]] std::set<StageOfShape> failed_stages() const {
    std::map<StageOfShape, bool> runs;
    for (const auto& [member, observation] : observed_)
      runs[stage_of(member)] |= observation.value.has_value();
    std::set<StageOfShape> failed;
    for (std::size_t member = 0; member < space_.members.size(); ++member) {
      const auto found = runs.find(stage_of(member));
      if (found == runs.end() || found->second || fallen_.contains(found->first)) continue;
      if (space_.is_below_lowest(member) && space_.status(member) == PlanStatus::planned)
        failed.insert(found->first);
    }
    return failed;
  }

  [[nodiscard]] bool may_fall() const {
    const bool has_trials_left = !options_.num_trials || num_asked_ < *options_.num_trials;
    return tuner_->is_done() && running_.empty() && has_trials_left && !failed_stages().empty();
  }

  /// The search begins anew, with what is known, and with smaller sizes in these stages.
  void fall() {
    const std::set<StageOfShape> failed = failed_stages();
    fallen_.insert(failed.begin(), failed.end());
    searched_ = space_;
    for (std::size_t member = 0; member < searched_.members.size(); ++member) {
      if (space_.is_below_lowest(member) != fallen_.contains(stage_of(member))) leave_out(member);
    }
    TuningOptions left = options_;
    if (left.num_trials) left.num_trials = *left.num_trials - num_asked_;
    tuner_ = make_plain_tuner(type_, searched_, left);
    for (const std::size_t member : order_)
      if (is_searched(member)) tuner_->observe(member, observed_.at(member));
    for (const auto& [shape, zero_stage] : failed)
      notes_.push_back(fmt::format(
          "the micro-batch that the config asks for does not run at stage {} on {} ranks: smaller "
          "ones are tried, as DeepSpeed's autotuner does",
          zero_stage, shape.size()));
  }

  std::string type_;
  TuningOptions options_;
  const PlannedSpace& space_;
  PlannedSpace searched_;  ///< what the tuner below may choose from
  std::unique_ptr<Tuner> tuner_;
  std::map<std::size_t, Observation> observed_;
  std::vector<std::size_t> order_;  ///< in which they were observed first
  std::set<std::size_t> running_;
  int num_asked_ = 0;  ///< what the cap of trials counts
  std::set<StageOfShape> fallen_;
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<Tuner> make_fallback_tuner(const std::string& type, const PlannedSpace& space,
                                           const TuningOptions& options) {
  return std::make_unique<FallbackTuner>(type, space, options);
}

}  // namespace dstune
