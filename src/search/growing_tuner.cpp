// The tuner `race` for searched micro-batches, if nobody knows how large they may be. Sizes of one
// configuration grow until memory is used up or throughput no longer grows. Their times say how
// fast others are likely to be, and a race decides among all sizes up to there.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "measured_memory.hpp"
#include "size_search.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// Seconds of a step by its micro-batch, from some that were measured: on straight lines between
/// and beyond them.
class StepTimes {
 public:
  /// Lines that fall steeply would come to nothing: a step takes at least this share of another's.
  explicit StepTimes(double least_share) : least_share_(least_share) {}

  void add(std::int64_t micro_batch, double step_s) { times_s_[micro_batch] = step_s; }

  [[nodiscard]] double at(std::int64_t micro_batch) const {
    require(!times_s_.empty(), "a size that was measured");
    if (times_s_.size() == 1) {
      const auto& [size, time_s] = *times_s_.begin();
      return time_s * static_cast<double>(micro_batch) / static_cast<double>(size);
    }
    auto above = times_s_.lower_bound(micro_batch);
    if (above == times_s_.begin()) ++above;
    if (above == times_s_.end()) --above;
    const auto below = std::prev(above);
    const double slope =
        (above->second - below->second) / static_cast<double>(above->first - below->first);
    const double time_s = below->second + slope * static_cast<double>(micro_batch - below->first);
    const bool is_beyond = micro_batch > above->first;
    return std::max(time_s, is_beyond ? above->second : least_share_ * below->second);
  }

 private:
  double least_share_;
  std::map<std::int64_t, double> times_s_;
};

class GrowingTuner : public Tuner {
 public:
  GrowingTuner(const PlannedSpace& space, const TuningOptions& options)
      : space_(space),
        options_(options),
        policy_(options.policy->sizes),
        memory_(space, options.policy->memory),
        chains_(size_chains(space)) {
    if (options.num_trials) trials_left_ = static_cast<std::size_t>(*options.num_trials);
    // The user's own configuration grows first.
    const auto own = std::ranges::find_if(chains_, [&](const SizeChain& chain) {
      return space_.baseline && std::ranges::find(chain, *space_.baseline) != chain.end();
    });
    if (own != chains_.end()) std::rotate(chains_.begin(), own, own + 1);
    for (std::size_t chain = 0; chain < chains_.size(); ++chain)
      for (const std::size_t member : chains_[chain]) chain_of_[member] = chain;
  }

  std::optional<std::size_t> next() override {
    if (trials_left_ == 0) return std::nullopt;
    auto member = race_ ? next_with_room() : next_grown();
    if (!member && race_) member = next_of_race();
    if (!member && race_ && race_->is_done() && running_.empty()) member = next_beyond();
    if (!member) return std::nullopt;
    if (member != space_.baseline) --trials_left_;  // of which the cap knows already
    running_.insert(*member);
    return member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    require(member < space_.members.size(), "a member of the planned space");
    running_.erase(member);
    if (!chain_of_.contains(member)) return;
    const auto best_before = best();
    if (results_.insert_or_assign(member, observation).second) order_.push_back(member);
    memory_.observe(member, observation);
    if (!race_) {
      if (!wanted_to_grow() && grown_chain()) begin_race();
    } else if (is_closed(member)) {
      if (is_by_memory_)
        fitted_.insert(member);
      else
        take_beyond(member, best_before);
    } else {
      race_->observe(member, observation);
    }
    if (race_ && is_by_memory_) raise_ceiling();
  }

  void revise(std::size_t member, const Observation& observation) override {
    const auto known = results_.find(member);
    if (known == results_.end()) return;
    known->second = observation;
    if (race_) race_->revise(member, observation);
  }

  [[nodiscard]] bool is_done() const override {
    if (!running_.empty()) return false;
    if (trials_left_ == 0) return true;
    return race_ ? race_->is_done() && !next_beyond() : !wanted_to_grow();
  }
  /// Sizes are chosen by how others of them ended.
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::unordered_map<std::size_t, SkipReason> of_race;
    if (race_)
      for (Skipped& one : race_->skipped())
        of_race.emplace(one.member, SkipReason{std::move(one.reason), one.kind});
    std::vector<Skipped> all;
    for (const std::size_t member : planned_members(space_)) {
      if (results_.contains(member)) continue;
      const auto known = of_race.find(member);
      all.push_back(
          skipped_for(member, known != of_race.end() ? known->second : reason_of(member)));
    }
    return all;
  }

  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return race_ ? race_->chance_of_better() : std::nullopt;
  }

  /// While sizes grow, there are at most as many steps up as the configuration has sizes.
  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    std::optional<ExpectedRuns> left = race_ ? race_->expected_left() : usual_race;
    if (left && !race_ && !chains_.empty()) {
      const SizeChain& grown = grown_chain() != nullptr ? *grown_chain() : chains_.front();
      double steps_up = 0;
      for (std::optional<std::size_t> place = largest_timed(grown).value_or(0);
           (place = place_above(grown, *place)).has_value();)
        ++steps_up;
      *left += {steps_up / 2, 0, steps_up};
    }
    if (!left) return left;
    return left->at_most(static_cast<double>(
        std::min(trials_left_, chain_of_.size() - std::min(chain_of_.size(), order_.size()))));
  }

 private:
  /// Larger is better; nothing where it was not timed. One that was raced out was.
  [[nodiscard]] std::optional<double> score_of(std::size_t member) const {
    const auto found = results_.find(member);
    if (found == results_.end() || !found->second.value) return std::nullopt;
    const double value = found->second.value->value;
    if (!(value > 0)) return std::nullopt;
    return is_minimised(options_.metric) ? 1 / value : value;
  }
  /// The best of all that ran to their end.
  [[nodiscard]] std::optional<std::size_t> best() const {
    std::optional<std::size_t> found;
    for (const std::size_t member : order_)
      if (results_.at(member).status == Status::ok && score_of(member) &&
          (!found || *score_of(member) > *score_of(*found)))
        found = member;
    return found;
  }

  // The sizes of one configuration.

  /// The place of the largest that was timed.
  [[nodiscard]] std::optional<std::size_t> largest_timed(const SizeChain& chain) const {
    for (std::size_t place = chain.size(); place > 0; --place)
      if (score_of(chain[place - 1])) return place - 1;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::size_t> place_above(const SizeChain& chain,
                                                       std::size_t place) const {
    std::vector<std::int64_t> sizes;
    for (const std::size_t member : chain) sizes.push_back(space_.micro_batch(member));
    return step_up(sizes, place, policy_.step_up);
  }
  /// Returns the relative gain of the size at a place over one that is so much smaller that this
  /// says something. Nothing if none of those was timed.
  [[nodiscard]] std::optional<double> growth_at(const SizeChain& chain, std::size_t place) const {
    for (std::size_t other = place; other > 0; --other) {
      const auto smaller = score_of(chain[other - 1]);
      if (smaller &&
          policy_.tells_growth * static_cast<double>(space_.micro_batch(chain[other - 1])) <=
              static_cast<double>(space_.micro_batch(chain[place])))
        return *score_of(chain[place]) / *smaller - 1;
    }
    return std::nullopt;
  }

  /// The state of a configuration's growth.
  struct Growth {
    std::optional<std::size_t> next{};  ///< the member to be run; nothing: it is over
    SkipReason reason{};                ///< why it is over; empty: there are no larger sizes
    /// Memory ended it, of which others may need less.
    bool is_by_memory = false;
  };
  [[nodiscard]] Growth growth_of(const SizeChain& chain) const {
    const auto runs = largest_timed(chain);
    std::optional<std::size_t> wanted;
    std::ptrdiff_t num_failed = 0;
    std::size_t last_failed = 0;
    for (std::size_t place = runs ? *runs + 1 : 0; place < chain.size(); ++place) {
      const auto found = results_.find(chain[place]);
      if (found == results_.end()) continue;
      const Status status = found->second.status;
      last_failed = place;
      if (status == Status::failed && !runs && ++num_failed < policy_.max_failing) continue;
      return {.reason = {fmt::format("{} ended as {}", space_.experiment(chain[place]).name,
                                     to_text(status)),
                         PruneKind::excluded},
              .is_by_memory = status == Status::out_of_memory};
    }
    if (runs) {
      const auto growth = growth_at(chain, *runs);
      if (growth && *growth < policy_.min_gain)
        return {.reason = {fmt::format("{} brought {:.1f} % over a smaller micro-batch",
                                       space_.experiment(chain[*runs]).name, 100 * *growth)}};
      wanted = place_above(chain, *runs);
    } else {
      wanted = num_failed > 0 ? place_above(chain, last_failed) : std::optional<std::size_t>(0);
    }
    if (!wanted) return {};
    const std::string refusal = memory_.refusal(chain[*wanted]);
    if (!refusal.empty())
      return {.reason = {fmt::format("{} {}", space_.experiment(chain[*wanted]).name, refusal),
                         PruneKind::excluded},
              .is_by_memory = true};
    return {.next = chain[*wanted]};
  }

  // Growing.

  /// The first configuration of which a size ran.
  [[nodiscard]] const SizeChain* grown_chain() const {
    const auto grown = std::ranges::find_if(
        chains_, [&](const SizeChain& chain) { return largest_timed(chain).has_value(); });
    return grown == chains_.end() ? nullptr : &*grown;
  }

  /// The member to be measured before the race; nothing if all are measured.
  [[nodiscard]] std::optional<std::size_t> wanted_to_grow() const {
    for (const SizeChain& chain : chains_) {
      const Growth growth = growth_of(chain);
      if (growth.next) return growth.next;
      if (!largest_timed(chain)) continue;
      const std::vector<std::size_t> others = anchors(chain);
      const auto open = std::ranges::find_if(
          others, [&](std::size_t member) { return !results_.contains(member); });
      return open == others.end() ? std::nullopt : std::optional(*open);
    }
    return std::nullopt;
  }

  /// On groups of each other shape one member, with the best size so far: how much faster they are
  /// nobody knows.
  [[nodiscard]] std::vector<std::size_t> anchors(const SizeChain& grown) const {
    std::size_t fastest = grown.front();
    for (const std::size_t member : grown)
      if (score_of(member) && (!score_of(fastest) || *score_of(member) > *score_of(fastest)))
        fastest = member;
    std::set<GroupShape> shapes = {space_.experiment(fastest).shape};
    std::vector<std::size_t> chosen;
    for (const SizeChain& chain : chains_) {
      const std::size_t* match = nullptr;
      for (const std::size_t& member : chain)
        if (space_.micro_batch(member) <= space_.micro_batch(fastest)) match = &member;
      if (match == nullptr || shapes.contains(space_.experiment(*match).shape)) continue;
      if (!results_.contains(*match) && !memory_.refusal(*match).empty()) continue;
      shapes.insert(space_.experiment(*match).shape);
      chosen.push_back(*match);
    }
    return chosen;
  }

  /// While one runs, idle ranks try the next step up.
  [[nodiscard]] std::optional<std::size_t> next_grown() const {
    const auto wanted = wanted_to_grow();
    if (!wanted || !running_.contains(*wanted)) return wanted;
    const SizeChain& chain = chains_[chain_of_.at(*wanted)];
    const auto place = static_cast<std::size_t>(std::ranges::find(chain, *wanted) - chain.begin());
    const auto runs = largest_timed(chain);
    const auto ahead = place_above(chain, place);
    const bool may_run = runs && *runs < place && ahead && !running_.contains(chain[*ahead]) &&
                         !results_.contains(chain[*ahead]) &&
                         memory_.refusal(chain[*ahead]).empty();
    return may_run ? std::optional(chain[*ahead]) : std::nullopt;
  }

  // The race among all sizes up to the largest that is worth it.

  void begin_race() {
    const SizeChain& grown = *grown_chain();
    fitted_.insert(order_.begin(), order_.end());
    anchors_ = anchors(grown);
    race_up_to(grown);
  }

  /// Races anew if the largest size of a configuration raises the ceiling. Others may have more
  /// room if memory ended its growth.
  void race_up_to(const SizeChain& chain) {
    const Growth growth = growth_of(chain);
    is_by_memory_ = growth.is_by_memory;
    closed_reason_ = growth.reason;
    const std::size_t runs = largest_timed(chain).value();
    const auto higher = place_above(chain, runs);
    const std::int64_t ceiling =
        space_.micro_batch(chain[is_by_memory_ && higher ? *higher : runs]);
    if (ceiling <= ceiling_) return;
    ceiling_ = ceiling;
    race_anew();
  }

  /// The configuration of which the largest size ran; of several the fastest.
  [[nodiscard]] const SizeChain& roomiest_chain() const {
    const SizeChain* roomiest = grown_chain();
    const auto reach = [&](const SizeChain& chain) {
      const std::size_t member = chain[largest_timed(chain).value()];
      return std::pair(space_.micro_batch(member), *score_of(member));
    };
    for (const SizeChain& chain : chains_)
      if (largest_timed(chain) && reach(chain) > reach(*roomiest)) roomiest = &chain;
    return *roomiest;
  }

  /// The member that grows on if memory ended the growth: a configuration may turn out to have more
  /// room.
  [[nodiscard]] std::optional<std::size_t> next_with_room() const {
    if (!is_by_memory_) return std::nullopt;
    const Growth growth = growth_of(roomiest_chain());
    const bool is_wanted =
        growth.next && is_closed(*growth.next) && !running_.contains(*growth.next);
    return is_wanted ? growth.next : std::nullopt;
  }

  /// A race that has begun anew does not know which members are running. It learns their results.
  [[nodiscard]] std::optional<std::size_t> next_of_race() {
    auto member = race_->next();
    while (member && running_.contains(*member)) member = race_->next();
    return member;
  }

  void raise_ceiling() {
    const SizeChain& roomiest = roomiest_chain();
    if (!growth_of(roomiest).next) race_up_to(roomiest);  // else it grows on first
  }

  [[nodiscard]] bool is_closed(std::size_t member) const {
    return space_.micro_batch(member) > ceiling_ && !fitted_.contains(member);
  }

  /// The configuration whose sizes tell how long steps are: the one that went furthest, if enough
  /// of its sizes were timed.
  [[nodiscard]] const SizeChain& telling_chain() const {
    const SizeChain& roomiest = roomiest_chain();
    const auto num_told = std::ranges::count_if(
        roomiest, [&](std::size_t member) { return fitted_.contains(member) && score_of(member); });
    return num_told < policy_.enough_told ? *grown_chain() : roomiest;
  }

  void race_anew() {
    raced_ = space_;
    const SizeChain& grown = telling_chain();
    StepTimes times(policy_.least_share_of_step);
    for (const std::size_t member : grown)
      if (fitted_.contains(member) && score_of(member))
        times.add(space_.micro_batch(member), samples_of(member) / throughput_of(member));
    const auto expected = [&](std::size_t member) {
      const TrainingConfig& config = space_.experiment(member).config;
      const auto steps_of = [](const TrainingConfig& of) {
        return static_cast<double>(of.accumulation_steps);
      };
      const double micro_steps =
          steps_of(config) / steps_of(space_.experiment(grown.front()).config);
      return samples_of(member) / (micro_steps * times.at(config.micro_batch));
    };
    std::map<GroupShape, double> scale;
    for (const std::size_t member : anchors_)
      if (score_of(member))
        scale[space_.experiment(member).shape] = throughput_of(member) / expected(member);
    for (const auto& [member, chain] : chain_of_) {
      PlannedExperiment& planned = raced_.members[member].planned;
      if (is_closed(member) && !results_.contains(member)) planned.status = PlanStatus::pruned;
      const auto found = scale.find(planned.experiment.shape);
      planned.predicted.throughput = expected(member) * (found == scale.end() ? 1 : found->second);
    }
    TuningOptions options = options_;
    // The race may name the running members, too; this tuner's own count holds the cap.
    if (options.num_trials) options.num_trials = static_cast<int>(trials_left_ + running_.size());
    race_ = make_race_tuner(raced_, options, {.fitted = fitted_});
    for (const std::size_t member : order_) race_->observe(member, results_.at(member));
  }

  [[nodiscard]] double samples_of(std::size_t member) const {
    return static_cast<double>(batch_of(space_.experiment(member)));
  }
  /// In samples/s; with the metric flops up to a constant, which all members share.
  [[nodiscard]] double throughput_of(std::size_t member) const {
    const double score = score_of(member).value();
    if (options_.metric == Metric::throughput) return score;
    return score * (options_.metric == Metric::latency ? 1e6 * samples_of(member)
                                                       : space_.experiment(member).shape.size());
  }

  // Beyond.

  /// Evidence above the best: the next size up of its configuration, where that was left out for
  /// what others' sizes brought.
  [[nodiscard]] std::optional<std::size_t> next_beyond() const {
    const auto leader = best();
    if (!leader) return std::nullopt;
    const SizeChain& chain = chains_[chain_of_.at(*leader)];
    for (const std::size_t member : chain)
      if (space_.micro_batch(member) > space_.micro_batch(*leader) && results_.contains(member))
        return std::nullopt;
    const Growth growth = growth_of(chain);
    return growth.next && is_closed(*growth.next) ? growth.next : std::nullopt;
  }

  void take_beyond(std::size_t member, std::optional<std::size_t> best_before) {
    const auto score = score_of(member);
    if (!score || !best_before ||
        *score <= (1 + options_.policy->answering.relevant_gain) * *score_of(*best_before))
      return;
    ceiling_ = space_.micro_batch(member);
    if (chain_of_.at(member) == chain_of_.at(grown_chain()->front())) fitted_.insert(member);
    race_anew();
  }

  [[nodiscard]] SkipReason reason_of(std::size_t member) const {
    const std::string refusal = memory_.refusal(member);
    if (!refusal.empty()) return {refusal, PruneKind::excluded};
    if (!race_) {
      const SizeChain& chain = chains_[chain_of_.at(member)];
      const Growth growth = growth_of(chain);
      return !growth.reason.text.empty() ? growth.reason : past_num_trials();
    }
    return {fmt::format("larger than micro-batch {}: {}", ceiling_, closed_reason_.text),
            closed_reason_.kind};
  }

  const PlannedSpace& space_;
  TuningOptions options_;
  const Policy::Sizes& policy_;
  MeasuredMemory memory_;
  std::vector<SizeChain> chains_;  ///< the baseline's first, then in the space's order
  std::unordered_map<std::size_t, std::size_t> chain_of_;
  std::unordered_map<std::size_t, Observation> results_;
  std::vector<std::size_t> order_;  ///< in which they came
  std::set<std::size_t> running_;
  std::size_t trials_left_ = SIZE_MAX;
  // The race.
  std::set<std::size_t> fitted_;      ///< what its predictions were made of
  std::vector<std::size_t> anchors_;  ///< of these, one for each other shape
  std::int64_t ceiling_ = 0;          ///< the largest micro-batch in it
  SkipReason closed_reason_;
  bool is_by_memory_ = false;  ///< it is where memory ended the growth
  PlannedSpace raced_;
  std::unique_ptr<Tuner> race_;
};

}  // namespace

std::unique_ptr<Tuner> make_growing_tuner(const PlannedSpace& space, const TuningOptions& options) {
  return std::make_unique<GrowingTuner>(space, options);
}

}  // namespace dstune
