#pragma once
/// The rows of members that were never run: what somebody else knows of them, and what became of
/// them. Local.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/base/text_pool.hpp"
#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

class PackedRows : public Packing<Row> {
 public:
  explicit PackedRows(std::shared_ptr<const MemberSource> source) : source_(std::move(source)) {}

  [[nodiscard]] std::unique_ptr<Packing> copy() const override {
    return std::make_unique<PackedRows>(*this);
  }
  [[nodiscard]] std::size_t size() const override { return source_->size(); }
  [[nodiscard]] Row unpack(std::size_t place) const override;
  void pack(std::size_t place, const Row& row) override;

  // Single facts, without unpacking the rest.
  [[nodiscard]] PlanStatus status(std::size_t place) const;
  [[nodiscard]] PruneKind prune_kind(std::size_t place) const;
  [[nodiscard]] std::string_view reason(std::size_t place) const;
  void decide(std::size_t place, PlanStatus status, PruneKind kind, std::string_view reason);
  void predict(std::size_t place, const Prediction& predicted);

 private:
  struct Note {
    TextPool::Place reason = 0;
    PlanStatus status = PlanStatus::planned;
    PruneKind prune_kind = PruneKind::not_chosen;
    bool is_there = false;
  };
  /// Throughputs that are predicted anew.
  using Speeds = std::pair<std::optional<double>, std::optional<double>>;

  [[nodiscard]] const Note* note_of(std::size_t place) const;

  std::shared_ptr<const MemberSource> source_;
  std::vector<Note> notes_;  ///< empty as long as there is none
  std::vector<std::optional<Speeds>> speeds_;
  std::shared_ptr<TextPool> reasons_ = std::make_shared<TextPool>();
};

}  // namespace dstune
