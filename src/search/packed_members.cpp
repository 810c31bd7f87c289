#include "packed_members.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

/// Numbers and texts as bytes: small numbers are short.
class ByteWriter {
 public:
  void add(std::uint64_t number) {
    for (; number >= 128; number >>= 7U) bytes_ += static_cast<char>((number & 127U) | 128U);
    bytes_ += static_cast<char>(number);
  }
  void add(std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    add(number < 0 ? (~bits << 1U) | 1U : bits << 1U);
  }
  void add(const std::string& text) {
    add(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t number() {
    std::uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      number |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return number;
    }
  }
  std::int64_t amount() {
    const std::uint64_t bits = number();
    return static_cast<std::int64_t>((bits & 1U) != 0 ? ~(bits >> 1U) : bits >> 1U);
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number());
    std::string text(bytes_.substr(at_, size));
    at_ += size;
    return text;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// The amounts of a prediction, once for writing and reading.
constexpr std::int64_t Prediction::*amounts[] = {&Prediction::peak_memory_bytes,
                                                 &Prediction::host_memory_bytes,
                                                 &Prediction::disk_bytes,
                                                 &Prediction::target_memory_bytes,
                                                 &Prediction::target_memory_shown_bytes,
                                                 &Prediction::target_host_memory_bytes,
                                                 &Prediction::target_loading_bytes,
                                                 &Prediction::target_saving_bytes,
                                                 &Prediction::target_disk_bytes,
                                                 &Prediction::process_memory_bytes,
                                                 &Prediction::gpu_memory_bytes};

constexpr std::optional<double> Prediction::*throughputs[] = {
    &Prediction::throughput, &Prediction::target_throughput, &Prediction::throughput_low,
    &Prediction::throughput_high};

using Bytes = std::map<std::string, std::int64_t>;

/// Tells whether it says anything but throughputs.
bool is_memory_predicted(const Prediction& predicted) {
  return std::ranges::any_of(amounts, [&](auto amount) { return predicted.*amount != 0; }) ||
         !predicted.target_categories.empty() || !predicted.categories.empty() ||
         !predicted.host_categories.empty() || !predicted.ranks.empty() ||
         predicted.verdict != MemoryVerdict::unknown || !predicted.because.empty();
}

}  // namespace

std::uint64_t PredictionPool::number_of(const std::string& name) {
  const auto [found, is_new] = numbers_.try_emplace(name, names_.size());
  if (is_new) names_.push_back(name);
  return found->second;
}

TextPool::Place PredictionPool::add(const Prediction& predicted) {
  if (!is_memory_predicted(predicted)) return 0;
  ByteWriter writer;
  const auto add_bytes = [&](const Bytes& bytes) {
    writer.add(static_cast<std::uint64_t>(bytes.size()));
    for (const auto& [name, amount] : bytes) {
      writer.add(number_of(name));
      writer.add(amount);
    }
  };
  for (const auto amount : amounts) writer.add(predicted.*amount);
  writer.add(static_cast<std::uint64_t>(predicted.verdict));
  writer.add(predicted.because);
  add_bytes(predicted.target_categories);
  add_bytes(predicted.categories);
  add_bytes(predicted.host_categories);
  writer.add(static_cast<std::uint64_t>(predicted.ranks.size()));
  for (const RankMemory& ranks : predicted.ranks) {
    writer.add(static_cast<std::int64_t>(ranks.first));
    writer.add(static_cast<std::int64_t>(ranks.last));
    writer.add(ranks.peak_memory_bytes);
    // All ranks together have these, as a rule.
    const bool is_shared = ranks.categories == predicted.categories;
    writer.add(static_cast<std::uint64_t>(is_shared));
    if (!is_shared) add_bytes(ranks.categories);
  }
  return texts_.add(writer.bytes());
}

Prediction PredictionPool::prediction(TextPool::Place place) const {
  Prediction predicted;
  if (place == 0) return predicted;
  ByteReader reader(texts_.text(place));
  const auto read_bytes = [&](Bytes& bytes) {
    for (std::uint64_t left = reader.number(); left > 0; --left) {
      const std::string& name = names_[reader.number()];
      bytes[name] = reader.amount();
    }
  };
  for (const auto amount : amounts) predicted.*amount = reader.amount();
  predicted.verdict = static_cast<MemoryVerdict>(reader.number());
  predicted.because = reader.text();
  read_bytes(predicted.target_categories);
  read_bytes(predicted.categories);
  read_bytes(predicted.host_categories);
  predicted.ranks.resize(reader.number());
  for (RankMemory& ranks : predicted.ranks) {
    ranks.first = static_cast<int>(reader.amount());
    ranks.last = static_cast<int>(reader.amount());
    ranks.peak_memory_bytes = reader.amount();
    if (reader.number() != 0)
      ranks.categories = predicted.categories;
    else
      read_bytes(ranks.categories);
  }
  return predicted;
}

PackedMembers::PackedMembers(MemberMaker maker, std::size_t expected) : maker_(std::move(maker)) {
  rows_.reserve(expected);
}

void PackedMembers::take(std::size_t place, const PlannedMember& member) {
  const PlannedExperiment& planned = member.planned;
  Row& row = rows_[place];
  row.micro_batch = planned.experiment.config.micro_batch;
  row.zero_stage = static_cast<std::int8_t>(planned.experiment.config.zero_stage);
  row.predicted = predictions_->add(planned.predicted);
  row.is_below_lowest = member.is_below_lowest;
  decide(place, planned.status, planned.prune_kind, planned.reason);
  take_throughputs(place, planned.predicted);
}

void PackedMembers::take_throughputs(std::size_t place, const Prediction& predicted) {
  if (throughputs_.empty()) {
    const bool is_any =
        std::ranges::any_of(throughputs, [&](auto each) { return (predicted.*each).has_value(); });
    if (!is_any) return;
  }
  constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
  if (throughputs_.size() < rows_.size())
    throughputs_.resize(rows_.size(), {nothing, nothing, nothing, nothing});
  for (std::size_t each = 0; each < std::size(throughputs); ++each)
    throughputs_[place][each] = (predicted.*throughputs[each]).value_or(nothing);
}

void PackedMembers::add(std::uint64_t number, const std::string& other_name,
                        const PlannedMember& member) {
  const std::size_t place = rows_.size();
  rows_.emplace_back().number = number;
  if (!other_name.empty()) other_names_[place] = other_name;
  take(place, member);
}

void PackedMembers::pack(std::size_t place, const PlannedMember& member) {
  take(place, member);
}

void PackedMembers::decide(std::size_t place, PlanStatus status, PruneKind kind,
                           std::string_view reason) {
  Row& row = rows_[place];
  row.status = status;
  row.prune_kind = kind;
  row.reason = reasons_->add(reason);
}

std::optional<double> PackedMembers::predicted_throughput(std::size_t place) const {
  if (place >= throughputs_.size()) return std::nullopt;
  const auto& [here, target, low, high] = throughputs_[place];
  if (!std::isnan(target)) return target;
  return std::isnan(here) ? std::nullopt : std::optional(here);
}

PlannedMember PackedMembers::unpack(std::size_t place) const {
  const Row& row = rows_[place];
  PlannedMember member;
  member.planned.experiment = maker_.experiment(row.number);
  if (const auto other = other_names_.find(place); other != other_names_.end())
    member.planned.experiment.name = other->second;
  member.planned.status = row.status;
  member.planned.prune_kind = row.prune_kind;
  member.planned.reason = reasons_->text(row.reason);
  member.planned.predicted = predictions_->prediction(row.predicted);
  if (place < throughputs_.size())
    for (std::size_t each = 0; each < std::size(throughputs); ++each)
      if (const double value = throughputs_[place][each]; !std::isnan(value))
        member.planned.predicted.*throughputs[each] = value;
  member.micro_batch_chain = maker_.micro_batch_chain(row.number);
  member.is_below_lowest = row.is_below_lowest;
  return member;
}

}  // namespace dstune
