#include "dstune/search/tuner.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "tuners.hpp"

namespace dstune {

std::vector<std::size_t> planned_members(const PlannedSpace& space) {
  std::vector<std::size_t> planned;
  for (std::size_t member = 0; member < space.members.size(); ++member)
    if (space.status(member) == PlanStatus::planned) planned.push_back(member);
  return planned;
}

std::vector<SizeChain> size_chains(const PlannedSpace& space) {
  // The number of a chain is not that of a member which is in none.
  std::map<std::pair<bool, std::uint64_t>, SizeChain> by_number;
  for (const std::size_t member : planned_members(space)) {
    const std::optional<std::uint64_t> chain = space.micro_batch_chain(member);
    by_number[{chain.has_value(), chain.value_or(member)}].push_back(member);
  }
  std::vector<SizeChain> chains;
  for (auto& [number, members] : by_number) chains.push_back(std::move(members));
  std::ranges::sort(chains, {}, [](const SizeChain& chain) { return chain.front(); });
  for (SizeChain& chain : chains)
    std::ranges::stable_sort(chain, {}, [&](auto member) { return space.micro_batch(member); });
  return chains;
}

ExpectedRuns EarlyStopping::expected_left(std::size_t num_waiting) const {
  ExpectedRuns left = ExpectedRuns::exactly(static_cast<double>(num_waiting));
  if (max_since_best_ <= 0) return left;
  if (is_due()) return {};
  constexpr double few = 0.1;
  const double observed = num_observed_;
  const auto longest = static_cast<std::size_t>(max_since_best_);
  double goes_on = 1;
  std::vector<double> bests{0};  // the chance that one is run, and is the best so far
  for (std::size_t begun = 1; begun <= num_waiting && goes_on > few; ++begun) {
    const double total = observed + static_cast<double>(begun);
    const double before = goes_on;
    bests.push_back(goes_on / total);
    // Nothing is better than today's best, or than one that was begun later: the product of all
    // chances 1 - 1 / n since then.
    if (begun + static_cast<std::size_t>(num_since_best_) == longest) goes_on -= observed / total;
    if (begun > longest) {
      const std::size_t leader = begun - longest;
      goes_on -= bests[leader] * (observed + static_cast<double>(leader)) / total;
    }
    const auto note = [&](double chance, double& count) {
      if (before > chance && goes_on <= chance) count = static_cast<double>(begun);
    };
    note(1 - few, left.low);
    note(0.5, left.likely);
    note(few, left.high);
  }
  return left;
}

FailureRules::Level& FailureRules::level_of(std::size_t feature, double value) {
  const auto found = std::ranges::find_if(levels_, [&](const Level& level) {
    return level.feature == feature && level.value == value;
  });
  return found != levels_.end() ? *found : levels_.emplace_back(Level{feature, value});
}

std::vector<std::pair<std::size_t, std::string>> FailureRules::observe(std::size_t place,
                                                                       Status status) {
  std::vector<std::pair<std::size_t, std::string>> excluded;
  if (status == Status::out_of_memory) return excluded;
  const bool has_failed = status == Status::failed || status == Status::timed_out;
  if (!has_failed) ++succeeded_;
  const Points& points = features_->points;
  for (std::size_t feature = 0; feature < points.num_features; ++feature) {
    Level& level = level_of(feature, points[place][feature]);
    ++(has_failed ? level.failed : level.succeeded);
  }
  if (succeeded_ == 0) return excluded;
  for (const Level& level : levels_) {
    if (level.failed < enough_failures_ || level.succeeded > 0) continue;
    for (std::size_t other = 0; other < members_.size(); ++other)
      if (points[other][level.feature] == level.value)
        excluded.emplace_back(other, fmt::format("all {} members with the same {} failed",
                                                 level.failed, features_->names[level.feature]));
  }
  return excluded;
}

namespace {

/// Every planned member, in the plan's order.
class OrderedTuner : public Tuner {
 public:
  OrderedTuner(const PlannedSpace& space, const TuningOptions& options)
      : num_members_(space.members.size()),
        early_stopping_(options.metric, options.early_stopping.value_or(0)) {
    for (const std::size_t member : planned_members(space)) waiting_.insert(member);
  }

  std::optional<std::size_t> next() override {
    if (is_done() || !early_stopping_.allows_beside(under_way_.size())) return std::nullopt;
    const std::size_t member = waiting_.extract(waiting_.begin()).value();
    under_way_.insert(member);
    return member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    require(member < num_members_, "a member of the planned space");
    waiting_.erase(member);
    under_way_.erase(member);
    early_stopping_.observe(member, observation.result());
  }

  void withdraw(std::size_t member) override { under_way_.erase(member); }

  void revise(std::size_t member, const Observation& observation) override {
    early_stopping_.revise(member, observation.result());
  }

  [[nodiscard]] bool is_done() const override {
    return waiting_.empty() || early_stopping_.is_due();
  }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    for (const std::size_t member : waiting_)
      all.push_back(skipped_for(member, early_stopping_.reason()));
    return all;
  }

  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    return early_stopping_.expected_left(waiting_.size());
  }

 private:
  std::size_t num_members_;
  std::set<std::size_t> waiting_;
  std::set<std::size_t> under_way_;  ///< asked for and not yet observed
  EarlyStopping early_stopping_;
};

}  // namespace

std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options) {
  return std::make_unique<OrderedTuner>(space, options);
}

const TunerType& tuner_type(std::string_view name) {
  const auto* const found = std::ranges::find(tuner_types, name, &TunerType::name);
  require(found != std::end(tuner_types), "a tuner's name");
  return *found;
}

namespace {

/// The baseline, then what another tuner asks for.
class BaselineFirst : public Tuner {
 public:
  BaselineFirst(const PlannedSpace& space, const TuningOptions& options,
                std::unique_ptr<Tuner> tuner)
      : space_(space),
        baseline_(*space.baseline),
        compared_with_(baseline_),
        is_only_(options.num_trials == 1),
        is_awaited_(options.early_stopping.value_or(0) > 0),
        tuner_(std::move(tuner)) {}

  std::optional<std::size_t> next() override {
    if (!has_begun_) {
      has_begun_ = true;
      return baseline_;
    }
    if (is_only_ || (is_awaited_ && is_running_)) return std::nullopt;
    const auto member = tuner_->next();
    return member == baseline_ ? tuner_->next() : member;
  }
  void observe(std::size_t member, const Observation& observation) override {
    has_begun_ |= member == baseline_;
    is_running_ &= member != baseline_;
    if (space_.baseline_grows && observation.result()) grow_to(member);
    tuner_->observe(member, observation);
  }
  void revise(std::size_t member, const Observation& observation) override {
    tuner_->revise(member, observation);
  }
  [[nodiscard]] bool is_done() const override {
    return has_begun_ && !is_running_ && (is_only_ || tuner_->is_done());
  }
  [[nodiscard]] std::size_t max_waiting() const override { return tuner_->max_waiting(); }
  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all = tuner_->skipped();
    std::erase_if(all, [&](const Skipped& one) { return one.member == baseline_; });
    return all;
  }
  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return tuner_->chance_of_better();
  }
  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    if (is_only_) return ExpectedRuns::exactly(has_begun_ ? 0 : 1);
    std::optional<ExpectedRuns> left = tuner_->expected_left();
    // To the other tuner it waits as long as it runs.
    if (left && has_begun_ && is_running_) {
      *left += ExpectedRuns::exactly(-1);
      left = left->at_least(0);
    }
    return left;
  }
  [[nodiscard]] std::optional<std::size_t> baseline() const override {
    return tuner_->baseline().value_or(compared_with_);
  }
  [[nodiscard]] std::vector<std::string> notes() const override { return tuner_->notes(); }

 private:
  /// Users reach first for the largest size that runs, so the comparison follows it.
  void grow_to(std::size_t member) {
    if (space_.micro_batch_chain(member) == space_.micro_batch_chain(compared_with_) &&
        space_.micro_batch(member) > space_.micro_batch(compared_with_))
      compared_with_ = member;
  }

  const PlannedSpace& space_;
  std::size_t baseline_;
  std::size_t compared_with_;
  bool is_only_;     ///< the cap leaves room for nothing else
  bool is_awaited_;  ///< early stopping counts from it
  std::unique_ptr<Tuner> tuner_;
  bool has_begun_ = false;
  bool is_running_ = true;  ///< or waits to be
};

std::unique_ptr<Tuner> make_searching_tuner(const std::string& type, const PlannedSpace& space,
                                            const TuningOptions& options) {
  const auto members = std::views::iota(std::size_t{0}, space.members.size());
  const bool may_fall =
      std::ranges::any_of(members, [&](auto member) { return space.is_below_lowest(member); });
  return may_fall ? make_fallback_tuner(type, space, options)
                  : make_plain_tuner(type, space, options);
}

}  // namespace

std::unique_ptr<Tuner> make_plain_tuner(const std::string& type, const PlannedSpace& space,
                                        const TuningOptions& options) {
  const auto members = std::views::iota(std::size_t{0}, space.members.size());
  const bool is_size_searched = std::ranges::any_of(
      members, [&](auto member) { return space.micro_batch_chain(member).has_value(); });
  const TunerType& tuner = tuner_type(type);
  if (is_size_searched && !tuner.searches_sizes) return make_phased_tuner(type, space, options);
  if (is_size_searched && space.is_unplanned) return make_growing_tuner(space, options);
  return tuner.make(space, options);
}

bool tuner_races(const TuningOptions& options) {
  return tuner_type(options.tuner_type).races;
}

std::unique_ptr<Tuner> make_tuner(const std::string& type, const PlannedSpace& space,
                                  const TuningOptions& options) {
  if (!space.baseline) return make_searching_tuner(type, space, options);
  TuningOptions others = options;
  if (others.num_trials) others.num_trials = std::max(1, *others.num_trials - 1);
  return std::make_unique<BaselineFirst>(space, options, make_searching_tuner(type, space, others));
}

}  // namespace dstune
