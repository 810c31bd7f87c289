#include "dstune/space/search_space.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "product_members.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

/// Why DeepSpeed refuses the combination of a member's knobs, or what is not built; mostly empty.
std::string refusal_of(const JobSpec& job, const Settings& settings) {
  const auto violations = violations_for(job, settings);
  if (violations.empty()) return "";
  return violations.front().pointer + ": " + violations.front().message;
}

}  // namespace

/// One walk through the space: what was seen so far.
class SearchSpace::Visit {
 public:
  explicit Visit(const SearchSpace& space) : space_(&space), job_(space.job_) {}

  Member member(const SpacePart& part, std::uint64_t number, const Digits& digits,
                const KnobConfig& knobs, const std::string& refusal) {
    Member member;
    member.number = number;
    for (std::size_t index = 0; index < digits.size(); ++index)
      member.depth = std::max(member.depth, part.depths[index][digits[index]]);
    member.config = knobs.config;
    complete_config(*job_, job_->recompute[digits.back()], member.config);
    member.shape = job_->shapes[digits.front()];
    member.reason = refusal.empty() ? target_refusal(*job_, member.config) : refusal;
    std::string why;
    const BatchTriple batch = take_batch(*job_, part.product, digits, knobs.ranks_per_micro_batch,
                                         member.shape, member.config, why);
    if (member.reason.empty()) {
      member.reason = why;
      member.prune_kind = PruneKind::batch;
    }
    member.train_batch_size = batch.train_batch_size;
    member.is_pruned = !member.reason.empty();
    member.micro_batch_chain = part.micro_batch_chain(number, digits);
    const std::string name = part.names.name(digits, member.config.zero_stage, batch);
    member.name = unique_name(name, number);
    member.has_other_name = member.name != name;
    if (!member.is_pruned) prune_twin(part, digits, batch, member);
    return member;
  }

 private:
  std::string unique_name(const std::string& name, std::uint64_t number) {
    if (names_.insert(digest128(name)).second) return name;
    for (int count = 2;; ++count) {
      auto unique = fmt::format("{}_{}", name, count);
      if (!names_.insert(digest128(unique)).second) continue;
      suffixed_.emplace(number, unique);
      return unique;
    }
  }

  /// The name of an earlier member that runs as this one does, whose batch sizes are the same.
  [[nodiscard]] std::string name_of(const SpacePart& part, const Digits& digits,
                                    std::uint64_t number, int zero_stage,
                                    const BatchTriple& batch) const {
    const auto suffixed = suffixed_.find(number);
    return suffixed != suffixed_.end() ? suffixed->second
                                       : part.names.name(digits, zero_stage, batch);
  }

  /// Somebody else's code may act on keys that the step here does not read.
  [[nodiscard]] Digest fingerprint_of(const SpacePart& part, const Digits& digits,
                                      const Member& member) const {
    const Digest known = fingerprint(effective_config(member.config), member.shape);
    if (!job_->takes_any_key()) return known;
    std::string text = fmt::format("{} {}", known.high, known.low);
    for (std::size_t index = 0; index < digits.size(); ++index) {
      const Dimension& dimension = part.product.dimensions[index];
      if (dimension.kind == Kind::knob && !is_read_here(job_->knobs(), dimension))
        text += " " + dimension.candidates[digits[index]].dump();
    }
    return digest128(text);
  }

  void prune_twin(const SpacePart& part, const Digits& digits, const BatchTriple& batch,
                  Member& member) {
    const auto [twin, is_new] =
        effects_.try_emplace(fingerprint_of(part, digits, member), member.number);
    if (is_new) return;
    const std::uint64_t number = twin->second;
    const SpacePart& part_of_twin = space_->parts_->part_of(number);
    const Digits others = part_of_twin.digits_of(number);
    const int stage = member.config.zero_stage;
    member.is_pruned = true;
    member.prune_kind = PruneKind::twin;
    member.reason = "runs exactly as " + name_of(part_of_twin, others, number, stage, batch);
    if (&part_of_twin != &part) return;
    const std::string why = twin_reason(part.product, digits, others, stage);
    if (!why.empty()) member.reason += ": " + why;
  }

  const SearchSpace* space_;
  const JobSpec* job_;
  std::unordered_set<Digest, DigestHash> names_;
  std::unordered_map<std::uint64_t, std::string> suffixed_;  ///< names that had to be told apart
  std::unordered_map<Digest, std::uint64_t, DigestHash> effects_;
};

SearchSpace::SearchSpace(const JobSpec& job) : job_(&job) {
  ConfigFindings findings;
  auto products = expand(job, findings);
  problems_in(job, findings).check();
  SpaceParts parts;
  std::uint64_t first = 0;
  for (auto& product : products) {
    parts.all.emplace_back(std::move(product), first, job.shapes.size() > 1,
                           job.recompute.size() > 1);
    first += parts.all.back().size;
  }
  parts_ = std::make_shared<const SpaceParts>(std::move(parts));
}

SearchSpace::~SearchSpace() = default;

std::uint64_t SearchSpace::size() const {
  return parts_->size();
}

std::uint64_t SearchSpace::size_without_search() const {
  std::uint64_t size = 0;
  for (const SpacePart& part : parts_->all)
    size += part.product.is_micro_batch_searched
                ? part.size / part.product.dimensions[part.micro_batch].candidates.size()
                : part.size;
  return size;
}

std::vector<std::string> SearchSpace::searched() const {
  std::vector<std::string> pointers;
  const auto add = [&](const std::string& pointer) {
    if (std::ranges::find(pointers, pointer) == pointers.end()) pointers.push_back(pointer);
  };
  // A part has a single stage where there are several.
  if (parts_->all.size() > 1) add("/zero_optimization/stage");
  for (const SpacePart& part : parts_->all)
    for (const Dimension& dimension : part.product.dimensions) {
      if (dimension.pointer.empty() || dimension.candidates.size() < 2) continue;
      // Candidates that are objects stand for what they write; defaults beside that only follow.
      const bool are_objects = std::ranges::all_of(
          dimension.candidates, [](const json::Value& one) { return one.is_object(); });
      if (!are_objects) add(dimension.pointer);
      for (const json::Value& candidate : dimension.candidates)
        if (are_objects)
          for (const auto& [key, value] : candidate.items())
            add(json::append_pointer(dimension.pointer, key));
    }
  return pointers;
}

void SearchSpace::visit(std::uint64_t limit, const std::function<bool(Member&&)>& visitor) const {
  Visit visit(*this);
  for (const SpacePart& part : parts_->all) {
    MemberCursor cursor(job_->knobs(), part.product);
    KnobConfig knobs = knob_config(*job_, cursor.settings());
    std::string refusal = refusal_of(*job_, cursor.settings());
    const std::uint64_t last = std::min(limit, part.first + part.size);
    for (std::uint64_t number = part.first; number < last; ++number) {
      if (!visitor(visit.member(part, number, cursor.digits(), knobs, refusal))) return;
      if (!cursor.advance()) continue;
      knobs = knob_config(*job_, cursor.settings());
      refusal = refusal_of(*job_, cursor.settings());
    }
  }
}

std::vector<Member> SearchSpace::members() const {
  std::vector<Member> all;
  visit(size(), [&](Member&& found) {
    all.push_back(std::move(found));
    return true;
  });
  return all;
}

Experiment SearchSpace::experiment(const Member& member) const {
  const SpacePart& part = parts_->part_of(member.number);
  Experiment experiment = experiment_of(*job_, part, part.digits_of(member.number), member.shape,
                                        member.config, member.train_batch_size);
  experiment.name = member.name;
  return experiment;
}

/// Holds a cursor in each part, so that neighbours in a walk cost little.
struct MemberMaker::State {
  State(const JobSpec& from, std::shared_ptr<const SpaceParts> all)
      : job(from), parts(std::move(all)) {
    for (const SpacePart& part : parts->all) {
      cursors.emplace_back(job.knobs(), part.product);
      knobs.push_back(knob_config(job, cursors.back().settings()));
    }
  }

  const JobSpec job;
  const std::shared_ptr<const SpaceParts> parts;
  std::vector<MemberCursor> cursors;
  std::vector<KnobConfig> knobs;  ///< of each cursor
};

MemberMaker::MemberMaker(const SearchSpace& space)
    : state_(std::make_shared<State>(*space.job_, space.parts_)) {}

Experiment MemberMaker::experiment(std::uint64_t number) const {
  const SpacePart& part = state_->parts->part_of(number);
  const auto place = static_cast<std::size_t>(&part - state_->parts->all.data());
  const JobSpec& job = state_->job;
  const Digits digits = part.digits_of(number);
  KnobConfig& knobs = state_->knobs[place];
  MemberCursor& cursor = state_->cursors[place];
  if (cursor.go_to(digits)) knobs = knob_config(job, cursor.settings());
  TrainingConfig config = knobs.config;
  complete_config(job, job.recompute[digits.back()], config);
  const GroupShape& shape = job.shapes[digits.front()];
  std::string why;
  const BatchTriple batch =
      take_batch(job, part.product, digits, knobs.ranks_per_micro_batch, shape, config, why);
  Experiment experiment = experiment_of(job, part, digits, shape, config, batch.train_batch_size);
  experiment.name = part.names.name(digits, config.zero_stage, batch);
  return experiment;
}

GroupShape MemberMaker::shape(std::uint64_t number) const {
  const SpacePart& part = state_->parts->part_of(number);
  return state_->job.shapes[(number - part.first) / part.strides.front()];
}

std::optional<std::uint64_t> MemberMaker::micro_batch_chain(std::uint64_t number) const {
  const SpacePart& part = state_->parts->part_of(number);
  return part.micro_batch_chain(number, part.digits_of(number));
}

}  // namespace dstune
