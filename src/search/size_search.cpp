#include "size_search.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune {

std::optional<std::size_t> step_up(const std::vector<std::int64_t>& sizes, std::size_t place,
                                   std::int64_t factor) {
  const auto above = std::ranges::upper_bound(sizes, factor * sizes[place]);
  const auto last = static_cast<std::size_t>(above - sizes.begin()) - 1;
  const std::size_t higher = std::max(last, place + 1);
  return higher < sizes.size() ? std::optional(higher) : std::nullopt;
}

SizeSearch::SizeSearch(std::vector<std::int64_t> sizes, int num_to_try, std::size_t start,
                       bool grows, const Policy::Sizes& policy)
    : sizes_(std::move(sizes)),
      num_to_try_(num_to_try),
      start_(start),
      grows_(grows),
      policy_(&policy),
      trials_(sizes_.size()) {
  require(!sizes_.empty() && start < sizes_.size(), "sizes to search, and one to start from");
}

std::optional<std::size_t> SizeSearch::next() {
  if (phase_ == Phase::done) return std::nullopt;
  if (phase_ == Phase::largest) return next_probe();
  const auto wanted =
      std::ranges::find_if(wanted_, [&](std::size_t place) { return is_untried(place); });
  return wanted == wanted_.end() ? std::nullopt : take(*wanted);
}

void SizeSearch::observe(std::size_t place, std::optional<double> score) {
  trials_.at(place) = {false, true, score};
  advance();
}

void SizeSearch::refuse_from(std::size_t place) {
  bool is_news = false;
  for (; place < trials_.size(); ++place) {
    if (!is_untried(place)) continue;
    trials_[place].is_over = true;
    is_news = true;
  }
  if (is_news) advance();
}

void SizeSearch::revise(std::size_t place, std::optional<double> score) {
  Trial& trial = trials_.at(place);
  if (trial.is_over) trial.score = score;
}

std::optional<std::size_t> SizeSearch::best() const {
  const auto best = std::ranges::max_element(trials_, {}, &Trial::score);
  if (!best->score) return std::nullopt;
  return static_cast<std::size_t>(best - trials_.begin());
}

std::optional<std::size_t> SizeSearch::largest() const {
  for (std::size_t place = trials_.size(); place > 0; --place)
    if (trials_[place - 1].score) return place - 1;
  return std::nullopt;
}

std::optional<std::size_t> SizeSearch::smallest_failed() const {
  const auto runs = largest();
  for (std::size_t place = runs ? *runs + 1 : 0; place < trials_.size(); ++place)
    if (trials_[place].is_over && !trials_[place].score) return place;
  return std::nullopt;
}

bool SizeSearch::is_untried(std::size_t place) const {
  return !trials_[place].is_running && !trials_[place].is_over;
}

bool SizeSearch::is_any_running() const {
  return std::ranges::any_of(trials_, &Trial::is_running);
}

std::optional<std::size_t> SizeSearch::take(std::size_t place) {
  trials_[place].is_running = true;
  return place;
}

/// The search begins with the start, and goes up in steps from the sizes that have ended, since
/// small sizes say whether larger ones pay. Idle groups try two steps. The middle of the widest gap
/// between a size that runs and one that does not comes next. A running size is taken for either.
std::optional<std::size_t> SizeSearch::next_probe() {
  if (is_untried(start_)) return take(start_);
  const auto failed = smallest_failed();
  const auto runs = largest();
  if (!runs && failed && is_untried(0)) return take(0);
  if (!runs && failed && grows_) {
    // A norm over the batch may fail with one sample, for example.
    std::optional<std::size_t> place = 0;
    while (place && !is_untried(*place)) place = step_up(sizes_, *place, policy_->step_up);
    return place && !is_any_running() ? take(*place) : std::nullopt;
  }
  if (!failed && grows_) {
    // One step at a time: nobody knows what the next one takes.
    const auto higher =
        runs && !is_any_running() ? step_up(sizes_, *runs, policy_->step_up) : std::nullopt;
    return higher ? take(*higher) : std::nullopt;
  }
  if (!runs) return std::nullopt;
  if (!failed) {
    auto higher = step_up(sizes_, *runs, policy_->largest_step_up);
    if (higher && !is_untried(*higher)) higher = step_up(sizes_, *higher, policy_->largest_step_up);
    return higher && is_untried(*higher) ? take(*higher) : std::nullopt;
  }
  std::size_t widest = 1;
  std::size_t from = *runs;
  for (std::size_t place = *runs, last = *runs; place <= *failed; ++place) {
    if (is_untried(place)) continue;
    if (place - last > widest) {
      widest = place - last;
      from = last;
    }
    last = place;
  }
  if (widest < 2) return std::nullopt;
  return take(from + widest / 2);
}

bool SizeSearch::is_largest_known() const {
  const auto runs = largest();
  if (!runs) {
    const auto num_over = std::ranges::count_if(trials_, &Trial::is_over);
    return trials_.front().is_over &&
           (!grows_ || num_over >= std::min(policy_->max_failing, std::ssize(trials_)));
  }
  if (*runs + 1 == trials_.size()) return true;
  return trials_[*runs + 1].is_over;
}

/// Tells whether the larger of the two largest sizes that ran brought too little.
bool SizeSearch::is_on_plateau() const {
  const auto runs = largest();
  if (!runs) return false;
  for (std::size_t place = *runs; place > 0; --place) {
    const auto& smaller = trials_[place - 1].score;
    if (smaller) return *trials_[*runs].score < (1 + policy_->min_gain) * *smaller;
  }
  return false;
}

void SizeSearch::advance() {
  if (phase_ == Phase::largest && (is_largest_known() || is_on_plateau())) {
    if (!largest()) {
      phase_ = is_any_running() ? phase_ : Phase::done;
      return;
    }
    choose_sizes();
    phase_ = Phase::coarse;
  }
  const auto is_over = [&](std::size_t place) { return trials_[place].is_over; };
  while ((phase_ == Phase::coarse || phase_ == Phase::fine) && !is_any_running() &&
         std::ranges::all_of(wanted_, is_over)) {
    const double best_now = *trials_[*best()].score;
    const bool goes_on = phase_ == Phase::coarse ||
                         best_now > (1 + policy_->min_fine_gain) * *trials_[best_before_].score;
    wanted_ = goes_on ? beside_best() : std::vector<std::size_t>();
    best_before_ = *best();
    phase_ = wanted_.empty() ? Phase::done : Phase::fine;
  }
  if (phase_ != Phase::done) return;
  sizes_to_try_.push_back(*best());
  std::ranges::sort(sizes_to_try_);
  sizes_to_try_.erase(std::ranges::unique(sizes_to_try_).begin(), sizes_to_try_.end());
}

/// Evenly from half of the largest to it.
void SizeSearch::choose_sizes() {
  const std::size_t last = *largest();
  const auto half = std::ranges::lower_bound(sizes_, sizes_[last] / 2);
  const auto first = std::min(last, static_cast<std::size_t>(half - sizes_.begin()));
  for (int number = 0; number < num_to_try_; ++number)
    wanted_.push_back(last - (last - first) * static_cast<std::size_t>(number) /
                                 static_cast<std::size_t>(std::max(1, num_to_try_ - 1)));
  sizes_to_try_ = wanted_;
}

/// The middle between the best and its neighbours that were tried.
std::vector<std::size_t> SizeSearch::beside_best() const {
  const std::size_t middle = *best();
  std::vector<std::size_t> places;
  std::size_t below = middle;
  while (below > 0 && is_untried(below - 1)) --below;
  if (below > 0 && below < middle) places.push_back((below - 1 + middle) / 2);
  std::size_t above = middle;
  while (above + 1 < trials_.size() && is_untried(above + 1)) ++above;
  // Not towards what did not run.
  if (above > middle && above + 1 < trials_.size() && trials_[above + 1].score)
    places.push_back((above + 1 + middle + 1) / 2);
  std::erase_if(places, [&](std::size_t place) { return !is_untried(place); });
  return places;
}

}  // namespace dstune
