#include "zero/folding.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>

#include "dstune/base/error.hpp"
#include "zero/gradients.hpp"

namespace dstune::plan {
namespace {

/// More layers than the longest pattern of windows, and than buckets of usual sizes span.
constexpr int longest_period = 12;
/// The first and the last ones have neighbours that are no layers; checkpoints on the host reach
/// two further.
constexpr int ends = 3;

/// The layers whose pieces a layer gathers or releases.
struct Named {
  int first = std::numeric_limits<int>::max(), last = -1;
  void add(int layer) {
    first = std::min(first, layer);
    last = std::max(last, layer);
  }
};

/// A pass over the layers: their visits, and a number for what each does; equal ones do the same.
struct Pass {
  std::vector<std::pair<int, int>> visits;  ///< [first, last) of each layer
  std::vector<Named> named;                 ///< by layer
  std::vector<int> kinds;
};

/// Numbers for lists: equal lists have the same one.
class Kinds {
 public:
  int of(const std::vector<std::int64_t>& list) {
    const auto index = std::find(known_.begin(), known_.end(), list) - known_.begin();
    if (index == static_cast<std::ptrdiff_t>(known_.size())) known_.push_back(list);
    return static_cast<int>(index);
  }

 private:
  std::vector<std::vector<std::int64_t>> known_;
};

/// Layers [first, last).
struct Run {
  int first = 0, last = 0;
  [[nodiscard]] int size() const { return last - first; }
};

/// The longest run in which each layer does what the one `period` before it does.
Run longest_run(const std::vector<int>& kinds, int period) {
  const auto count = static_cast<int>(kinds.size());
  Run longest;
  for (int first = 0; first + period < count;) {
    int last = first + period;
    while (last < count && kinds[last] == kinds[last - period]) ++last;
    if (last - first > longest.size()) longest = {first, last};
    first = last - period + 1;
  }
  return longest;
}

bool may_fold(const Layout& layout, const TrainingConfig& config) {
  const bool splits_optimizer = is_optimizer_offloaded(config) && config.offload_ratio < 1;
  const bool adds_up_behind = is_bf16_optimizer(config) && !config.immediate_grad_update;
  return (layout.stage() == 0 || layout.stage() == 3) && !uses_disk(config) && !splits_optimizer &&
         !adds_up_behind;
}

class FoldFinder {
 public:
  FoldFinder(const ModelSpec& model, const Layout& layout, const TrainingConfig& config,
             const Gathering* gathering)
      : model_(model),
        layout_(layout),
        config_(config),
        gathering_(gathering),
        layers_(static_cast<int>(model.num_layers)) {
    for (Pass* pass : {&forward_, &backward_}) pass->named.resize(layers_);
  }

  std::optional<LayerFold> find() {
    if (gathering_ != nullptr && (!find_visits() || reaches_far())) return std::nullopt;
    name_kinds();
    std::optional<LayerFold> best;
    for (int period = 1; period <= longest_period && 6 * period < layers_; ++period) {
      const std::optional<LayerFold> fold = with_period(period);
      if (fold && (!best || fold->left_out > best->left_out)) best = fold;
      if (best && 2 * best->left_out >= layers_) break;
    }
    return best;
  }

 private:
  [[nodiscard]] int piece_begin(int layer) const {
    return layout_.piece_begin(layout_.table().unit_range(layer + 1).first);
  }

  /// Tells whether each layer has its own visits, one after the other, in forward and in backward.
  bool find_visits() {
    for (Pass* pass : {&forward_, &backward_}) pass->visits.assign(layers_, {-1, -1});
    const ModuleTrace& trace = gathering_->traced->trace;
    Pass* pass = &forward_;
    for (int index = 0; index < static_cast<int>(trace.visits.size()); ++index) {
      const Visit& visit = trace.visits[index];
      if (!visit.is_forward) pass = &backward_;
      const int layer = trace.modules[visit.module].layer;
      if (layer < 0) continue;
      auto& [first, last] = pass->visits[layer];
      if (first < 0) first = last = index;
      if (last != index) return false;
      ++last;
    }
    const auto is_there = [](const std::pair<int, int>& range) { return range.first >= 0; };
    return std::ranges::all_of(forward_.visits, is_there) &&
           std::ranges::all_of(backward_.visits, is_there);
  }

  /// Tells whether layers gather so far ahead that too few would settle between the ends.
  [[nodiscard]] bool reaches_far() const {
    const int layer = layers_ / 2;
    const auto [first, last] = forward_.visits[layer];
    int furthest = layer;
    for (int index = first; index < last; ++index)
      for (const int piece : gathering_->steady.prefetched[index])
        furthest = std::max(furthest, layer_of(piece));
    return 2 * (furthest - layer + ends) >= layers_;
  }

  void name_kinds() {
    if (layout_.stage() > 0) ranges_ = cut_into_buckets(layout_, config_.reduce_bucket_size);
    Kinds forward, backward;
    std::size_t range = ranges_.size();
    for (int layer = 0; layer < layers_; ++layer) {
      std::vector<std::int64_t> list{model_.window_of(layer, config_.sequence_length),
                                     model_.rotates(layer), model_.rotates_locally(layer)};
      std::vector<std::int64_t> back = list;
      if (gathering_ != nullptr) {
        add_visits(layer, forward_, list);
        add_visits(layer, backward_, back);
      }
      if (!ranges_.empty()) add_buckets(layer, range, back);
      forward_.kinds.push_back(forward.of(list));
      backward_.kinds.push_back(backward.of(back));
    }
  }

  /// All numbers are counted from the layer's own first piece, visit and module.
  void add_visits(int layer, Pass& pass, std::vector<std::int64_t>& list) const {
    const TracedGathers& traced = *gathering_->traced;
    const auto [first, last] = pass.visits[layer];
    const int pieces = piece_begin(layer);
    for (int index = first; index < last; ++index) {
      const Visit& visit = traced.trace.visits[index];
      const Module& module = traced.trace.modules[visit.module];
      list.insert(list.end(),
                  {visit.module - traced.trace.visits[first].module, visit.is_forward, visit.holds,
                   visit.pieces.size() == 0 ? 0 : visit.pieces.first - pieces, visit.pieces.size(),
                   module.is_leaf, module.is_linear});
      for (const auto gathers : gather_lists) {
        const std::span<const int> entries = (gathering_->steady.*gathers)[index];
        list.push_back(static_cast<std::int64_t>(entries.size()));
        for (const int piece : entries) {
          list.push_back(piece - pieces);
          pass.named[layer].add(layer_of(piece));
        }
      }
    }
    for (int piece = pieces; piece < piece_begin(layer + 1); ++piece)
      list.push_back(traced.kept[piece] ? 1 : 0);
  }

  /// The layer of a piece; the pieces before and behind all layers are those of one more each.
  [[nodiscard]] int layer_of(int piece) const {
    return layout_.parameter(layout_.piece(piece).parameter).unit - 1;
  }

  /// The bucket as the layer's gradients arrive, and the places where it is cut then. `range`:
  /// the first one that may touch the layer; ranges go from the last parameters to the first.
  void add_buckets(int layer, std::size_t& range, std::vector<std::int64_t>& list) const {
    const auto [first, last] = layout_.table().unit_range(layer + 1);
    while (range > 0 && ranges_[range - 1].last <= first) --range;
    const int blocks_end = layout_.table().unit_range(layers_).second;
    for (std::size_t each = range; each > 0 && ranges_[each - 1].first < last; --each) {
      const BucketRange& bucket = ranges_[each - 1];
      list.insert(list.end(), {bucket.alone, std::max(bucket.first - first, -1),
                               bucket.last - first, bucket.last <= blocks_end});
    }
  }

  [[nodiscard]] std::optional<LayerFold> with_period(int period) const {
    Run forward = longest_run(forward_.kinds, period);
    Run backward = longest_run(backward_.kinds, period);
    for (Run* run : {&forward, &backward})
      *run = {std::max(run->first, ends), std::min(run->last, layers_ - ends)};
    int reach = 1;
    // Layers that are left out are named by layers that repeat each other alone.
    int low = 0, high = layers_;
    for (const auto& [pass, run] :
         {std::pair(&forward_, forward), std::pair(&backward_, backward)}) {
      for (int layer = 0; layer < layers_; ++layer) {
        const Named& named = pass->named[layer];
        if (layer < run.first) low = std::max(low, named.last + 1);
        if (layer >= run.last) high = std::min(high, named.first);
        if (run.first <= layer && layer < run.last)
          reach = std::max({reach, layer - named.first, named.last - layer});
      }
    }
    // Two periods on either side are behind all that reaches into them from other layers.
    const int settled = reach + 3 * period;
    const int split = std::max({forward.first + settled, backward.first + 1, reach + 1, low});
    const int last = std::min({forward.last, backward.last - settled, layers_ - reach - 1, high});
    const int left_out = (last - split) / period * period;
    if (left_out < period) return std::nullopt;
    const LayerFold fold{period, split, left_out, forward.first, backward.last - left_out};
    if (!is_same_arithmetic(fold) || names_left_out(fold)) return std::nullopt;
    return fold;
  }

  /// Tells whether a visit of no layer names a layer that is left out.
  [[nodiscard]] bool names_left_out(const LayerFold& fold) const {
    if (gathering_ == nullptr) return false;
    const ModuleTrace& trace = gathering_->traced->trace;
    for (int index = 0; index < static_cast<int>(trace.visits.size()); ++index) {
      if (trace.modules[trace.visits[index].module].layer >= 0) continue;
      for (const auto gathers : gather_lists) {
        for (const int piece : (gathering_->steady.*gathers)[index]) {
          const int layer = layer_of(piece);
          if (fold.split <= layer && layer < fold.split + fold.left_out) return true;
        }
      }
    }
    return false;
  }

  /// The folded model's layers are told apart by their place in it.
  [[nodiscard]] bool is_same_arithmetic(const LayerFold& fold) const {
    for (int layer = fold.split; layer + fold.left_out < layers_; ++layer) {
      const int whole = layer + fold.left_out;
      if (model_.window_of(layer, config_.sequence_length) !=
              model_.window_of(whole, config_.sequence_length) ||
          model_.rotates(layer) != model_.rotates(whole) ||
          model_.rotates_locally(layer) != model_.rotates_locally(whole))
        return false;
    }
    return true;
  }

  const ModelSpec& model_;
  const Layout& layout_;
  const TrainingConfig& config_;
  const Gathering* gathering_;
  int layers_;
  Pass forward_, backward_;
  std::vector<BucketRange> ranges_;
};

}  // namespace

std::optional<LayerFold> find_fold(const ModelSpec& model, const Layout& layout,
                                   const TrainingConfig& config, const Gathering* gathering) {
  if (!may_fold(layout, config)) return std::nullopt;
  return FoldFinder(model, layout, config, gathering).find();
}

}  // namespace dstune::plan
