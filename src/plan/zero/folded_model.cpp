/// The model that a fold leaves.

#include <algorithm>
#include <memory>
#include <utility>

#include "zero/folding.hpp"
#include "zero/states.hpp"

namespace dstune::plan {
namespace {

ModelSpec without_layers(const ModelSpec& whole, int left_out) {
  ModelSpec model = whole;
  model.num_layers -= left_out;
  return model;
}

/// The gathers of the layers that are left.
class FoldedGathers {
 public:
  FoldedGathers(const LayerFold& fold, const Layout& whole, const Layout& folded,
                const Gathering& gathering)
      : folded_(folded), gathering_(gathering) {
    const auto piece_of = [&](int layer) {
      return whole.piece_begin(whole.table().unit_range(layer + 1).first);
    };
    blocks_ = piece_of(0);
    blocks_end_ = whole.piece_begin(
        whole.table().unit_range(static_cast<int>(whole.table().num_units() - 1)).first);
    split_ = piece_of(fold.split);
    left_out_ = piece_of(fold.split + fold.left_out) - split_;
    first_left_out_ = fold.split;
    last_left_out_ = fold.split + fold.left_out;
    int left = 0;
    for (const Module& module : gathering.traced->trace.modules) {
      index_of_.push_back(left);
      if (!is_left_out(module.layer)) ++left;
    }
    index_of_.push_back(left);
  }

  [[nodiscard]] Gathering make() const {
    const TracedGathers& traced = *gathering_.traced;
    const auto folded = std::make_shared<TracedGathers>();
    folded->pieces = folded_.pieces();
    for (int piece = 0; piece < static_cast<int>(folded->pieces.size()); ++piece)
      folded->kept.push_back(traced.kept[piece < split_ ? piece : piece + left_out_]);
    place_kept(folded_, *folded);
    make_modules(*folded);
    MicroStepGathers steady;
    int next = 0;
    for (int index = 0; index < static_cast<int>(traced.trace.visits.size()); ++index) {
      const Visit& visit = traced.trace.visits[index];
      const int layer = traced.trace.modules[visit.module].layer;
      if (is_left_out(layer)) continue;
      folded->trace.visits.push_back(
          {index_of_[visit.module], visit.is_forward, visit.holds, range_of_pieces(visit.pieces)});
      for (const auto list : gather_lists)
        for (const int piece : (gathering_.steady.*list)[index])
          (steady.*list).add(next, place_of(piece, layer));
      ++next;
    }
    for (const auto list : gather_lists) (steady.*list).sort(static_cast<std::size_t>(next));
    steady.read.sort(static_cast<std::size_t>(next));
    steady.read_ahead.sort(static_cast<std::size_t>(next));
    return {.traced = folded, .failure = {}, .second = {}, .steady = std::move(steady)};
  }

 private:
  [[nodiscard]] bool is_left_out(int layer) const {
    return first_left_out_ <= layer && layer < last_left_out_;
  }

  /// Modules that are left begin and end where layers do.
  [[nodiscard]] PieceRange range_of_pieces(PieceRange range) const {
    const auto place = [&](int piece) { return piece > split_ ? piece - left_out_ : piece; };
    return {place(range.first), place(range.last)};
  }

  void make_modules(TracedGathers& folded) const {
    for (Module module : gathering_.traced->trace.modules) {
      if (is_left_out(module.layer)) continue;
      if (module.layer >= last_left_out_) module.layer -= last_left_out_ - first_left_out_;
      module.own = range_of_pieces(module.own);
      module.all = range_of_pieces(module.all);
      module.end = index_of_[module.end];
      folded.trace.modules.push_back(module);
    }
  }

  /// The place of a piece that a visit of `layer` names: as far from that layer as it is there.
  [[nodiscard]] int place_of(int piece, int layer) const {
    if (piece < blocks_) return piece;
    if (piece >= blocks_end_) return piece - left_out_;
    if (layer < 0) return piece < split_ ? piece : piece - left_out_;
    return layer < first_left_out_ ? piece : piece - left_out_;
  }

  const Layout& folded_;
  const Gathering& gathering_;
  int blocks_, blocks_end_;             // pieces of layers
  int split_, left_out_;                // pieces
  int first_left_out_, last_left_out_;  // layers
  std::vector<int> index_of_;  // by the whole model's module: modules that are left before it
};

/// The configuration as far as layers and gathers depend on it.
TrainingConfig folding_key(const TrainingConfig& config) {
  TrainingConfig key = config;
  key.micro_batch = 1;
  key.accumulation_steps = std::min<std::int64_t>(config.accumulation_steps, 2);
  return key;
}

}  // namespace

FoldedModel::FoldedModel(const LayerFold& layers, const ModelSpec& whole, const Layout& of_whole,
                         const TrainingConfig& config, const Gathering* of_gathers)
    : fold(layers),
      model(without_layers(whole, layers.left_out)),
      table(std::make_unique<const ParameterTable>(model)),
      layout(*table, config.zero_stage, of_whole.partition(), of_whole.offloaded(),
             order_of(config)) {
  if (of_gathers != nullptr) gathering = FoldedGathers(fold, of_whole, layout, *of_gathers).make();
}

const FoldedModel* FoldedModels::of(const ModelSpec& model, const Layout& layout,
                                    const TrainingConfig& config, const Gathering* gathering) {
  const TrainingConfig key = folding_key(config);
  const int group_size = layout.group_size() * layout.partition().replicas;
  for (const Known& known : known_)
    if (known.group_size == group_size && known.config == key) return known.folded.get();
  if (known_.size() < max_known) known_.emplace_back();
  Known& known = known_[next_];
  next_ = (next_ + 1) % max_known;
  known = {key, group_size, nullptr};
  const std::optional<LayerFold> fold = find_fold(model, layout, config, gathering);
  if (fold)
    known.folded = std::make_unique<const FoldedModel>(*fold, model, layout, config, gathering);
  return known.folded.get();
}

}  // namespace dstune::plan
