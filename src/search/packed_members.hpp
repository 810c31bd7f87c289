#pragma once
/// The members of a planned space, kept as their numbers and what was decided about each. Local.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dstune/base/packed_list.hpp"
#include "dstune/base/text_pool.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/search_space.hpp"

namespace dstune {

/// The memory and the words of predictions, one behind the other. Many members share theirs.
class PredictionPool {
 public:
  /// All of a prediction but its throughputs.
  [[nodiscard]] TextPool::Place add(const Prediction& predicted);
  [[nodiscard]] Prediction prediction(TextPool::Place place) const;

 private:
  [[nodiscard]] std::uint64_t number_of(const std::string& name);

  TextPool texts_;
  std::vector<std::string> names_;  ///< of categories, the first added first
  std::unordered_map<std::string, std::uint64_t> numbers_;
};

/// A member of a space is its number; its name and its configuration are made when somebody looks
/// at them.
class PackedMembers : public Packing<PlannedMember> {
 public:
  PackedMembers(MemberMaker maker, std::size_t expected);

  /// Adds one behind the others. `other_name`: empty where it has its own.
  void add(std::uint64_t number, const std::string& other_name, const PlannedMember& member);

  [[nodiscard]] std::unique_ptr<Packing> copy() const override {
    return std::make_unique<PackedMembers>(*this);
  }
  [[nodiscard]] std::size_t size() const override { return rows_.size(); }
  [[nodiscard]] PlannedMember unpack(std::size_t place) const override;
  void pack(std::size_t place, const PlannedMember& member) override;

  // Single facts, without unpacking the rest.
  [[nodiscard]] PlanStatus status(std::size_t place) const { return rows_[place].status; }
  [[nodiscard]] PruneKind prune_kind(std::size_t place) const { return rows_[place].prune_kind; }
  [[nodiscard]] bool is_below_lowest(std::size_t place) const {
    return rows_[place].is_below_lowest;
  }
  [[nodiscard]] std::string_view reason(std::size_t place) const {
    return reasons_->text(rows_[place].reason);
  }
  [[nodiscard]] GroupShape shape(std::size_t place) const {
    return maker_.shape(rows_[place].number);
  }
  [[nodiscard]] int zero_stage(std::size_t place) const { return rows_[place].zero_stage; }
  [[nodiscard]] std::optional<double> predicted_throughput(std::size_t place) const;
  [[nodiscard]] std::int64_t micro_batch(std::size_t place) const {
    return rows_[place].micro_batch;
  }
  [[nodiscard]] std::optional<std::uint64_t> micro_batch_chain(std::size_t place) const {
    return maker_.micro_batch_chain(rows_[place].number);
  }
  void decide(std::size_t place, PlanStatus status, PruneKind kind, std::string_view reason);

 private:
  /// The four throughputs of a prediction; not a number: nothing.
  using Throughputs = std::array<double, 4>;
  struct Row {
    std::uint64_t number = 0;  ///< in the space
    std::int64_t micro_batch = 0;
    TextPool::Place reason = 0;
    TextPool::Place predicted = 0;
    PlanStatus status = PlanStatus::planned;
    PruneKind prune_kind = PruneKind::not_chosen;
    std::int8_t zero_stage = 0;
    bool is_below_lowest = false;
  };

  void take(std::size_t place, const PlannedMember& member);
  void take_throughputs(std::size_t place, const Prediction& predicted);

  MemberMaker maker_;
  std::vector<Row> rows_;
  std::vector<Throughputs> throughputs_;  ///< empty as long as none is predicted
  std::unordered_map<std::size_t, std::string> other_names_;
  // They only grow, so that copies share them.
  std::shared_ptr<TextPool> reasons_ = std::make_shared<TextPool>();
  std::shared_ptr<PredictionPool> predictions_ = std::make_shared<PredictionPool>();
};

}  // namespace dstune
