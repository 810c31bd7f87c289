#include "dstune/space/search_space.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "sections/names.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;
using Digits = std::vector<std::size_t>;

/// The meaning of a member's knobs, whatever its batch sizes, shape and recompute.
struct Knobs {
  TrainingConfig config;
  std::string refusal;  ///< why DeepSpeed refuses the combination, or what is not built
  /// DeepSpeed divides the number of ranks by this in its rule of the batch sizes.
  std::int64_t ranks_per_micro_batch = 1;
};

Knobs knobs_of(const JobSpec& job, const Settings& settings) {
  Knobs knobs{training_config(settings), ""};
  const auto violations = violations_for(job, settings);
  if (!violations.empty())
    knobs.refusal = violations.front().pointer + ": " + violations.front().message;
  if (job.takes_any_key()) {
    knobs.ranks_per_micro_batch = sequence_ranks(settings);
    knobs.config.ranks_per_batch = knobs.ranks_per_micro_batch * tensor_ranks(settings);
  }
  return knobs;
}

/// Goes through the members of a product, changing only what differs from one to the next.
class MemberCursor {
 public:
  /// At member 0. `product` outlives it.
  MemberCursor(const KnobTable& table, const Product& product)
      : product_(&product), digits_(product.dimensions.size(), 0), settings_(table) {
    settings_.apply(product.settings);
    for (const auto& dimension : product.dimensions)
      if (dimension.kind == Kind::knob) settings_.apply(dimension.settings.front());
  }

  /// The candidate of each dimension.
  [[nodiscard]] const Digits& digits() const { return digits_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  /// Goes on; after the last member it is at the first again. Returns whether a knob changed.
  bool advance() {
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

 private:
  const Product* product_;
  Digits digits_;
  Settings settings_;
};

/// How far one step of each dimension goes in a member's number; the last goes by 1.
std::vector<std::uint64_t> strides_of(const Product& product) {
  const auto& dimensions = product.dimensions;
  std::vector<std::uint64_t> strides(dimensions.size(), 1);
  for (std::size_t index = dimensions.size(); index-- > 1;)
    strides[index - 1] = strides[index] * dimensions[index].candidates.size();
  return strides;
}

}  // namespace

struct SearchSpace::Part {
  Product product;
  std::uint64_t first = 0;  ///< number of its first member
  std::uint64_t size = 0;
  std::vector<std::uint64_t> strides;
  std::vector<std::vector<std::uint32_t>> depths;
  std::vector<json::Value::json_pointer> places;
  NameTemplate names;
  std::size_t micro_batch = 0;  ///< that dimension

  Part(Product made, std::uint64_t begin, bool with_shape, bool with_recompute)
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

  /// The candidate of each dimension of a member.
  [[nodiscard]] Digits digits_of(std::uint64_t number) const {
    Digits digits;
    for (std::size_t index = 0; index < strides.size(); ++index)
      digits.push_back((number - first) / strides[index] %
                       product.dimensions[index].candidates.size());
    return digits;
  }
};

/// One walk through the space: what was seen so far.
class SearchSpace::Visit {
 public:
  explicit Visit(const SearchSpace& space) : space_(&space), job_(space.job_) {}

  Member member(const Part& part, std::uint64_t number, const Digits& digits, const Knobs& knobs) {
    Member member;
    member.number = number;
    for (std::size_t index = 0; index < digits.size(); ++index)
      member.depth = std::max(member.depth, part.depths[index][digits[index]]);
    member.config = knobs.config;
    complete_config(*job_, job_->recompute[digits.back()], member.config);
    member.shape = job_->shapes[digits.front()];
    member.reason = knobs.refusal.empty() ? target_refusal(*job_, member.config) : knobs.refusal;
    const auto batch = decide_batch(part.product, digits, knobs.ranks_per_micro_batch, member);
    member.is_pruned = !member.reason.empty();
    if (part.product.is_micro_batch_searched)
      member.micro_batch_chain = number - digits[part.micro_batch] * part.strides[part.micro_batch];
    member.name = unique_name(part.names.name(digits, member.config.zero_stage, batch), number);
    if (!member.is_pruned) prune_twin(part, digits, batch, member);
    return member;
  }

 private:
  BatchTriple decide_batch(const Product& product, const Digits& digits,
                           std::int64_t ranks_per_micro_batch, Member& member) const {
    std::optional<std::int64_t> total, micro, steps;
    for (std::size_t index = 0; index < digits.size(); ++index) {
      const auto& dimension = product.dimensions[index];
      if (dimension.kind == Kind::train_batch_size) total = size_of(dimension, digits[index]);
      if (dimension.kind == Kind::micro_batch) micro = size_of(dimension, digits[index]);
      if (dimension.kind == Kind::accumulation_steps) steps = size_of(dimension, digits[index]);
    }
    // The engine itself says so if ranks do not divide.
    const std::int64_t group_size =
        std::max<std::int64_t>(1, member.shape.size() / ranks_per_micro_batch);
    std::string why;
    auto triple = resolve_batch(total, micro, steps, group_size, why);
    if (triple) why = batch_limit_reason(job_->tuning, triple->train_batch_size);
    if (!triple) triple = {*total, *micro, steps.value_or(*total / *micro / group_size)};
    if (member.reason.empty()) {
      member.reason = why;
      member.prune_kind = PruneKind::batch;
    }
    member.train_batch_size = triple->train_batch_size;
    member.config.micro_batch = triple->micro_batch;
    member.config.accumulation_steps = triple->accumulation_steps;
    place_on(member.shape, member.config);
    return *triple;
  }

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
  [[nodiscard]] std::string name_of(const Part& part, const Digits& digits, std::uint64_t number,
                                    int zero_stage, const BatchTriple& batch) const {
    const auto suffixed = suffixed_.find(number);
    return suffixed != suffixed_.end() ? suffixed->second
                                       : part.names.name(digits, zero_stage, batch);
  }

  /// Somebody else's code may act on keys that the step here does not read.
  [[nodiscard]] Digest fingerprint_of(const Part& part, const Digits& digits,
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

  void prune_twin(const Part& part, const Digits& digits, const BatchTriple& batch,
                  Member& member) {
    const auto [twin, is_new] =
        effects_.try_emplace(fingerprint_of(part, digits, member), member.number);
    if (is_new) return;
    const std::uint64_t number = twin->second;
    const Part& part_of_twin = space_->part_of(number);
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
  std::uint64_t first = 0;
  for (auto& product : products) {
    parts_.emplace_back(std::move(product), first, job.shapes.size() > 1, job.recompute.size() > 1);
    first += parts_.back().size;
  }
}

SearchSpace::~SearchSpace() = default;

std::uint64_t SearchSpace::size() const {
  return parts_.back().first + parts_.back().size;
}

std::vector<std::string> SearchSpace::searched() const {
  std::vector<std::string> pointers;
  const auto add = [&](const std::string& pointer) {
    if (std::ranges::find(pointers, pointer) == pointers.end()) pointers.push_back(pointer);
  };
  // A part has a single stage where there are several.
  if (parts_.size() > 1) add("/zero_optimization/stage");
  for (const Part& part : parts_)
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

const SearchSpace::Part& SearchSpace::part_of(std::uint64_t number) const {
  std::size_t index = parts_.size() - 1;
  while (parts_[index].first > number) --index;
  return parts_[index];
}

void SearchSpace::visit(std::uint64_t limit, const std::function<bool(Member&&)>& visitor) const {
  Visit visit(*this);
  for (const Part& part : parts_) {
    MemberCursor cursor(job_->knobs(), part.product);
    Knobs knobs = knobs_of(*job_, cursor.settings());
    const std::uint64_t last = std::min(limit, part.first + part.size);
    for (std::uint64_t number = part.first; number < last; ++number) {
      if (!visitor(visit.member(part, number, cursor.digits(), knobs))) return;
      if (cursor.advance()) knobs = knobs_of(*job_, cursor.settings());
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
  const Part& part = part_of(member.number);
  const Digits digits = part.digits_of(member.number);
  Experiment experiment{member.name, part.product.base, member.shape, member.config};
  auto& config = experiment.ds_config;
  for (std::size_t index = 0; index < digits.size(); ++index) {
    const auto& dimension = part.product.dimensions[index];
    if (dimension.kind == Kind::knob)
      config[part.places[index]] = dimension.candidates[digits[index]];
  }
  config["train_batch_size"] = member.train_batch_size;
  config["train_micro_batch_size_per_gpu"] = member.config.micro_batch;
  config["gradient_accumulation_steps"] = member.config.accumulation_steps;
  experiment.written_out =
      write_out_defaults(job_->deepspeed_version, member.config.zero_stage, config);
  return experiment;
}

}  // namespace dstune
