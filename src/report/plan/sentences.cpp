#include "sentences.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "parts.hpp"
#include "words.hpp"

namespace dstune {

namespace {

using plan_words::described;
using plan_words::judged_bytes;
using plan_words::memory_words;
using plan_words::ranks_words;

constexpr std::size_t max_names = 4;
constexpr std::size_t max_changes = 3;
/// Lines that may go, the first of all with the highest number.
constexpr int few_members_rank = 1, reason_rank = 2, pruned_rank = 3;
constexpr std::size_t max_reasons = 2, max_reasons_of_all = 9;
constexpr double hour_s = 3600;

class Sentences {
 public:
  Sentences(const DryRun& plan, const PlanAnswer& answer, bool is_whole)
      : plan_(&plan), answer_(&answer), is_whole_(is_whole) {}

  [[nodiscard]] std::vector<PlanLine> all() && {
    largest();
    others();
    fastest();
    edge();
    change();
    num_gpus();
    reasons();
    unknown();
    duration();
    counts();
    return std::move(lines_);
  }

 private:
  void add(std::string text, int rank = 0) { lines_.push_back({std::move(text), rank}); }
  [[nodiscard]] const PlannedExperiment& at(std::size_t member) const {
    return plan_->experiments[member];
  }
  [[nodiscard]] std::int64_t size_of(std::size_t member) const {
    return at(member).experiment.config.micro_batch;
  }

  void largest() {
    if (!answer_->largest) {
      if (answer_->num_misfits == 0) return;
      const bool is_sure = answer_->edge.empty() && answer_->num_unknown == 0;
      std::string text = is_sure ? "No member fits" : "No member is sure to fit";
      // The line of the edge names the smallest where one is there.
      if (answer_->least && answer_->edge.empty())
        text += fmt::format("; the smallest is {}", described(*plan_, at(*answer_->least)));
      return add(text + ".");
    }
    const std::size_t member = *answer_->largest;
    std::string text = fmt::format("The largest micro-batch that fits is {}", size_of(member));
    if (has_no_larger_size(*answer_)) text += ", the largest that its configuration has here";
    text += fmt::format(" ({})", described(*plan_, at(member), ": "));
    if (answer_->fastest == member && answer_->num_fitting > 1)
      text += "; it is also the fastest that fits";
    if (answer_->changes.larger_micro_batch)
      text += fmt::format("; {} would fit as well", *answer_->changes.larger_micro_batch);
    add(text + ".");
  }

  /// The largest size of every other configuration.
  void others() {
    std::vector<std::string> names;
    std::uint64_t num_without = 0, num_more = 0;
    for (const SizeChain& chain : answer_->chains) {
      if (!chain.largest)
        ++num_without;
      else if (chain.largest != answer_->largest && names.size() < max_names)
        names.push_back(at(*chain.largest).experiment.name);
      else if (chain.largest != answer_->largest)
        ++num_more;
    }
    if (names.empty()) return;
    std::string text =
        fmt::format("The largest members of other configurations: {}", fmt::join(names, ", "));
    if (num_more > 0) text += fmt::format(" and {} more", num_more);
    if (num_without > 0)
      text +=
          fmt::format("; {} without a size that fits", format_count(num_without, "configuration"));
    add(text + ".", few_members_rank);
  }

  void fastest() {
    if (answer_->fastest && answer_->fastest != answer_->largest)
      add(fmt::format("The fastest that fits is {}.", described(*plan_, at(*answer_->fastest))));
  }

  void edge() {
    if (answer_->edge.empty()) return;
    std::string text = fmt::format("At the edge, inside the error of the plan: {}",
                                   described(*plan_, at(answer_->edge.front())));
    if (answer_->edge.size() > 1) text += fmt::format("; and {} more", answer_->edge.size() - 1);
    add(text + ".");
  }

  void change() {
    const PlanChanges& changes = answer_->changes;
    if (!changes.subject) return;
    const std::string& name = at(*changes.subject).experiment.name;
    if (changes.changes.empty()) {
      if (plan_->what_if) add(fmt::format("No change that was tried makes {} fit.", name));
      return;
    }
    const PlanChange& first = changes.changes.front();
    std::string text = fmt::format("The cheapest change that makes {} fit is {} ({})", name,
                                   first.text, described(*plan_, first.planned, ": "));
    std::vector<std::string> others;
    for (std::size_t place = 1; place < changes.changes.size(); ++place)
      if (others.size() < max_changes) others.push_back(changes.changes[place].text);
    if (!others.empty())
      text +=
          fmt::format("; next, by {}: {}", changes.is_by_speed ? "predicted speed" : "usual cost",
                      fmt::join(others, "; "));
    add(text + ".");
  }

  void num_gpus() {
    const PlanChanges& changes = answer_->changes;
    if (changes.tried_num_gpus.size() < 2) return;
    const char* noun = plan_->head.is_on_gpus ? "GPUs" : "ranks";
    const std::string tried = fmt::format("{}", fmt::join(changes.tried_num_gpus, ", "));
    if (changes.smallest_num_gpus)
      add(fmt::format("The smallest number of {} that fits is {} (tried: {}, with {}).", noun,
                      *changes.smallest_num_gpus, tried, changes.smallest_with));
    else
      add(fmt::format("No number of {} that was tried fits ({}, with {}).", noun, tried,
                      changes.smallest_with));
  }

  void reasons() {
    const std::size_t room = is_whole_ ? max_reasons_of_all : max_reasons;
    shared_reasons(answer_->misfits, "does not fit", "do not fit", room, reason_rank);
    shared_reasons(answer_->pruned, "is pruned", "are pruned", room - 1, pruned_rank);
  }

  /// A line for each of the most frequent reasons; the last counts what has others.
  void shared_reasons(const std::vector<SharedReason>& reasons, const char* one,
                      const char* several, std::size_t room, int rank) {
    std::uint64_t num_others = 0;
    for (std::size_t place = room; place < reasons.size(); ++place)
      num_others += reasons[place].count;
    for (std::size_t place = 0; place < std::min(room, reasons.size()); ++place) {
      const SharedReason& reason = reasons[place];
      std::string text = fmt::format("{}: {}", counted(reason.count, one, several), reason.text);
      if (reason.count > 1)
        text += fmt::format("; the {} is {}", rank == reason_rank ? "smallest" : "first",
                            at(reason.example).experiment.name);
      if (place + 1 == room && num_others > 0)
        text += fmt::format("; {} for other reasons", num_others);
      add(text + ".", rank == reason_rank && place == 0 ? 0 : rank);
    }
  }

  [[nodiscard]] static std::string counted(std::uint64_t count, const char* one,
                                           const char* several) {
    return fmt::format("{} {}", format_count(count, "member"), count == 1 ? one : several);
  }

  void unknown() {
    if (answer_->num_unknown == 0) return;
    std::string text =
        fmt::format("Whether {} {} is not known", format_count(answer_->num_unknown, "member"),
                    answer_->num_unknown == 1 ? "fits" : "fit");
    if (!plan_->no_verdict.empty()) text += ": " + plan_->no_verdict;
    add(text + ".");
  }

  /// The time that tuning takes, or the reason why there are no speeds.
  void duration() {
    if (plan_->expected_s) {
      const int ranks = plan_words::tuning_ranks(*plan_);
      return add(fmt::format("Tuning takes about {} on {}: {} {}-hours.",
                             format_duration(*plan_->expected_s), ranks_words(*plan_, ranks),
                             plan_words::short_number(ranks * *plan_->expected_s / hour_s),
                             plan_->head.is_on_gpus ? "GPU" : "rank"));
    }
    const auto is_planned = [](const auto& one) { return one.status == PlanStatus::planned; };
    const bool has_planned = std::ranges::any_of(plan_->experiments, is_planned);
    if (!has_planned && plan_->no_speed.empty()) return;
    const bool has_speed = std::ranges::any_of(plan_->experiments, [](const auto& planned) {
      return ranked_throughput(planned.predicted).has_value();
    });
    std::string text =
        has_speed ? "The speed of some members is not predicted" : "No speed is predicted";
    if (has_planned) text += ", so the time that tuning takes is not known";
    if (!plan_->no_speed.empty()) text += ": " + plan_->no_speed;
    add(text + ".");
  }

  void counts() {
    const std::string total = format_count(plan_->total, "member");
    const bool has_all = plan_->total == plan_->experiments.size();
    std::string text = has_all ? fmt::format("{}: {} planned, {} infeasible, {}.", total,
                                             plan_->planned, plan_->infeasible, pruned_part())
                               : judged_part(total);
    if (plan_->device_memory_bytes > 0)
      text += fmt::format(" A rank may use {}.", format_bytes(plan_->device_memory_bytes));
    if (!is_whole_) text += " --all shows each of them.";
    add(text);
  }

  /// The counts where the space is too large to be judged whole, or there was no time for it.
  [[nodiscard]] std::string judged_part(const std::string& total) const {
    const auto has = [&](PlanStatus status) {
      return std::ranges::count(plan_->experiments, status, &PlannedExperiment::status);
    };
    const auto planned = has(PlanStatus::planned);
    return fmt::format(
        "{}: {}, {} not. The answer judges {} of these, with some lists shortened: {} planned, {} "
        "infeasible. Shorten your lists to have all of them judged.",
        total, pruned_part(), plan_->planned + plan_->infeasible, planned + plan_->infeasible,
        planned, plan_->infeasible);
  }

  /// "4 pruned (3 would run exactly like another, 1 came after …)"
  [[nodiscard]] std::string pruned_part() const {
    std::vector<std::string> parts;
    for (const auto& [kind, count] : plan_->prune_counts)
      if (count > 0) parts.push_back(fmt::format("{} {}", count, prune_words(kind)));
    return fmt::format("{} pruned{}", plan_->pruned,
                       parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", ")));
  }

  const DryRun* plan_;
  const PlanAnswer* answer_;
  bool is_whole_;
  std::vector<PlanLine> lines_;
};

}  // namespace

std::vector<PlanLine> answer_lines(const DryRun& plan, const PlanAnswer& answer, bool is_whole) {
  return Sentences(plan, answer, is_whole).all();
}

}  // namespace dstune
