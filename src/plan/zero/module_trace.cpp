#include <algorithm>
#include <numeric>
#include <ranges>
#include <span>
#include <utility>

#include "dstune/base/error.hpp"
#include "zero/gathering.hpp"

namespace dstune::plan {
namespace {

using enum ParameterRole;

/// DeepSpeed gathers no module larger than this as a whole.
constexpr std::int64_t largest_leaf_elements = 1'000'000'000;
constexpr int no_module = -1;

class ModuleTree {
 public:
  ModuleTree(const ModelSpec& model, const ParameterTable& table, const std::vector<Piece>& pieces,
             std::vector<Module>& modules)
      : model_(model),
        table_(table),
        modules_(modules),
        layers_(static_cast<int>(model.num_layers)) {
    piece_begin_.assign(table.all().size() + 1, static_cast<int>(pieces.size()));
    for (std::size_t piece = pieces.size(); piece-- > 0;)
      piece_begin_[pieces[piece].parameter] = static_cast<int>(piece);
    modules_.reserve(layers_ * 16 + 8);
    build();
  }

 private:
  [[nodiscard]] PieceRange parameters(int first, int last) const {
    return {piece_begin_[first], piece_begin_[last]};
  }
  /// The weight and, where there is one, the bias behind it.
  [[nodiscard]] PieceRange of(int unit, ParameterRole weight, ParameterRole bias) const {
    const int first = table_.find(unit, weight);
    require(first >= 0, "the model has a parameter of this role");
    const int last = table_.find(unit, bias);
    return parameters(first, std::max(first, last) + 1);
  }
  [[nodiscard]] PieceRange of_units(int first, int last) const {
    return parameters(table_.unit_range(first).first, table_.unit_range(last).second);
  }
  [[nodiscard]] static PieceRange part(PieceRange range, int index) {
    return {range.first + index, range.first + index + 1};
  }

  int open(ModuleKind kind, PieceRange all) {
    modules_.push_back({.kind = kind, .layer = layer_, .own = {all.first, all.first}, .all = all});
    return static_cast<int>(modules_.size()) - 1;
  }
  void close(int module) { modules_[module].end = static_cast<int>(modules_.size()); }
  Module& leaf(ModuleKind kind, PieceRange own) {
    const int end = static_cast<int>(modules_.size()) + 1;
    return modules_.emplace_back(
        Module{.kind = kind, .layer = layer_, .own = own, .all = own, .end = end});
  }
  Module& bare() { return leaf(ModuleKind::other, {}); }
  void biases(PieceRange own) { leaf(ModuleKind::other, own).is_part = true; }
  /// GPT-2's blocks have Conv1D instead, whose forward keeps no weight.
  void linear(ModuleKind kind, PieceRange own) {
    leaf(kind, own).is_linear = model_.family != ModelFamily::gpt2 || kind == ModuleKind::head;
  }

  void build() {
    const int root = open(ModuleKind::root, of_units(0, layers_ + 1));
    const bool has_norm = table_.find(layers_ + 1, final_norm_weight) >= 0;
    const PieceRange blocks = of_units(1, layers_);
    const PieceRange norm = has_norm ? of(layers_ + 1, final_norm_weight, final_norm_bias)
                                     : PieceRange{blocks.last, blocks.last};
    const int base = open(ModuleKind::base, {0, norm.last});
    embeddings();
    const int list = open(ModuleKind::blocks, blocks);
    modules_[list].is_called = false;
    for (int unit = 1; unit <= layers_; ++unit) block(unit);
    close(list);
    if (has_norm) leaf(ModuleKind::final_norm, norm);
    close(base);
    head(layers_ + 1);
    close(root);
    modules_[root].is_first = true;
    modules_[base].is_first = true;
  }

  void embeddings() {
    constexpr std::pair<ParameterRole, ModuleKind> tables[] = {
        {token_embedding, ModuleKind::token_embedding},
        {token_type_embedding, ModuleKind::token_type_embedding},
        {position_embedding, ModuleKind::position_embedding}};
    for (const auto& [role, kind] : tables)
      if (table_.find(0, role) >= 0) leaf(kind, of(0, role, role)).is_first = true;
    if (table_.find(0, embedding_norm_weight) >= 0)
      leaf(ModuleKind::embedding_norm, of(0, embedding_norm_weight, embedding_norm_bias));
    // Rotary embeddings, or dropout.
    bare().has_gradient = model_.architecture.positions != PositionKind::rotary;
  }

  void head(int unit) {
    if (table_.find(unit, transform_weight) >= 0) {
      linear(ModuleKind::transform, of(unit, transform_weight, transform_bias));
      bare();
      leaf(ModuleKind::transform_norm, of(unit, transform_norm_weight, transform_norm_bias));
    }
    if (!model_.tie_embeddings) {
      linear(ModuleKind::head, of(unit, head_weight, head_bias));
      return;
    }
    linear(ModuleKind::head, of(0, token_embedding, token_embedding));
    if (table_.find(unit, head_bias) >= 0) biases(of(unit, head_bias, head_bias));
  }

  void block(int unit) {
    layer_ = unit - 1;
    const int block = open(ModuleKind::block, of_units(unit, unit));
    modules_[block].is_block = true;
    const BlockKind kind = model_.architecture.block;
    const bool norm_first = kind != BlockKind::post_norm && kind != BlockKind::branch_norm;
    // Falcon calls both norms of parallel branches before either branch.
    const bool norms_first = model_.family == ModelFamily::falcon && kind == BlockKind::parallel;
    const auto norm1 = [&] { leaf(ModuleKind::norm1, of(unit, norm1_weight, norm1_bias)); };
    const auto norm2 = [&] {
      if (table_.find(unit, norm2_weight) >= 0)
        leaf(ModuleKind::norm2, of(unit, norm2_weight, norm2_bias));
    };
    if (norm_first) norm1();
    if (norms_first) norm2();
    attention(unit);
    if (!norm_first) norm1();
    branch_norm(unit, ModuleKind::branch_norm1, branch_norm1_weight);
    if (norm_first && !norms_first) norm2();
    mlp(unit);
    if (!norm_first) norm2();
    branch_norm(unit, ModuleKind::branch_norm2, branch_norm2_weight);
    close(block);
    layer_ = -1;
  }

  void branch_norm(int unit, ModuleKind kind, ParameterRole weight) {
    if (table_.find(unit, weight) >= 0) leaf(kind, of(unit, weight, weight));
  }

  void dropout() {
    using enum ModelFamily;
    const ModelFamily family = model_.family;
    if (family == gpt2 || family == gpt_neox || family == bert) bare().saves = model_.dropout > 0;
  }

  void attention(int unit) {
    const PieceRange weights = of(unit, qkv_weight, qkv_weight);
    const PieceRange projection = of(unit, projection_weight, projection_bias);
    const int module = open(ModuleKind::attention, {weights.first, projection.last});
    if (weights.size() == 1) {
      linear(ModuleKind::query_key_value, of(unit, qkv_weight, qkv_bias));
    } else {
      const bool normed = model_.architecture.query_key_norm;
      const auto query_norm = [&] {
        leaf(ModuleKind::query_norm, of(unit, query_norm_weight, query_norm_weight));
      };
      const auto key_norm = [&] {
        leaf(ModuleKind::key_norm, of(unit, key_norm_weight, key_norm_weight));
      };
      const bool norms_last = model_.family == ModelFamily::gemma3_text;
      linear(ModuleKind::query, part(weights, 0));
      if (normed && !norms_last) query_norm();
      linear(ModuleKind::key, part(weights, 1));
      if (normed && !norms_last) key_norm();
      linear(ModuleKind::value, part(weights, 2));
      if (normed && norms_last) {
        query_norm();
        key_norm();
      }
      // Hugging Face's modules have each bias with its matrix. Biases stay whole as a rule.
      if (table_.find(unit, qkv_bias) >= 0) biases(of(unit, qkv_bias, qkv_bias));
    }
    linear(ModuleKind::projection, projection);
    dropout();
    close(module);
  }

  void mlp(int unit) {
    const PieceRange weights = of(unit, fc_weight, fc_weight);
    const PieceRange projection = of(unit, fc_projection_weight, fc_projection_bias);
    const int module = open(ModuleKind::mlp, {weights.first, projection.last});
    if (weights.size() == 1) {
      linear(ModuleKind::fc, of(unit, fc_weight, fc_bias));
      bare();
    } else {
      linear(ModuleKind::gate, part(weights, 0));
      bare();
      linear(ModuleKind::up, part(weights, 1));
    }
    linear(ModuleKind::fc_projection, projection);
    dropout();
    close(module);
  }

  const ModelSpec& model_;
  const ParameterTable& table_;
  std::vector<Module>& modules_;
  int layers_;
  int layer_ = -1;  // of the modules that are made
  std::vector<int> piece_begin_;
};

struct ModuleSize {
  std::int64_t layers = 0, elements = 0;
};

ModuleSize size_of(const std::vector<Module>& modules, const std::vector<Piece>& pieces,
                   int index) {
  const Module& module = modules[index];
  ModuleSize size;
  for (const int piece : module.own) size.elements += pieces[piece].elements;
  for (int child = index + 1; child < module.end; child = modules[child].end) {
    const ModuleSize below = size_of(modules, pieces, child);
    size.layers += below.layers;
    size.elements += below.elements;
  }
  if (module.is_called && size.elements > 0) ++size.layers;
  return size;
}

/// Makes leaves of the modules whose layers are small: this one, or some of those in it. The
/// threshold is stage3_module_granularity_threshold.
void mark_small(std::vector<Module>& modules, const std::vector<Piece>& pieces,
                std::int64_t threshold, int index) {
  Module& module = modules[index];
  const ModuleSize size = size_of(modules, pieces, index);
  if (size.elements == 0 || module.end == index + 1) return;
  if (module.is_called && size.elements <= largest_leaf_elements &&
      size.elements / size.layers <= threshold) {
    module.is_leaf = true;
    return;
  }
  for (int child = index + 1; child < module.end; child = modules[child].end)
    mark_small(modules, pieces, threshold, child);
}

void mark_leaves(const ModelSpec& model, const LeafModules& leaves, std::vector<Module>& modules) {
  for (const NamedModule& named : selected_modules(model, leaves)) {
    const auto same = [&](const Module& module) {
      return module.kind == named.kind && module.layer == named.layer;
    };
    const auto found = std::find_if(modules.begin(), modules.end(), same);
    if (found != modules.end() && named.kind != ModuleKind::other) found->is_leaf = true;
  }
}

/// A unit's parameters lie in the flat order as forward needs them; norms of LLaMA's blocks are
/// registered last, biases with their matrices.
std::vector<int> register_pieces(const ModelSpec& model, const ParameterTable& table,
                                 const std::vector<Piece>& pieces,
                                 const std::vector<Module>& modules) {
  const std::vector<ModuleKind> kinds = modules_of_block(model);
  const auto place_of = [&](ModuleKind kind) {
    return static_cast<int>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
  };
  std::vector<int> places(pieces.size(), 0);  // in the unit
  constexpr ModuleKind with_bias[] = {ModuleKind::query, ModuleKind::key, ModuleKind::value};
  for (const Module& module : modules) {
    if (module.layer < 0) continue;
    for (const int piece : module.own) {
      const bool is_bias = module.kind == ModuleKind::other;
      places[piece] = place_of(is_bias ? with_bias[piece - module.own.first] : module.kind);
    }
  }
  const auto key = [&](int piece) {
    return std::pair(table.all()[pieces[piece].parameter].unit, places[piece]);
  };
  std::vector<int> registered(pieces.size());
  std::iota(registered.begin(), registered.end(), 0);
  std::stable_sort(registered.begin(), registered.end(),
                   [&](int a, int b) { return key(a) < key(b); });
  return registered;
}

class Tracer {
 public:
  Tracer(ModuleTrace& trace, bool recompute) : trace_(trace), recompute_(recompute) {
    trace.visits.reserve(trace.modules.size() * 3);
    trace.events.reserve(trace.modules.size() * 6);
    find_children();
    forward(0);
    backward(0);
    for (const int visit : left_over_) trace.events.push_back({TraceEvent::Kind::left_over, visit});
    for (const TraceEvent& event : trace.events) {
      const Visit& visit = trace.visits[event.visit];
      if (visit.pieces.size() > 0 && !at(visit.module).is_part) ++trace.num_hooks;
    }
  }

 private:
  [[nodiscard]] const Module& at(int index) const { return trace_.modules[index]; }
  void find_children() {
    children_.reserve(trace_.modules.size());
    children_begin_.reserve(trace_.modules.size() + 1);
    for (int parent = 0; parent < static_cast<int>(trace_.modules.size()); ++parent) {
      children_begin_.push_back(children_.size());
      if (at(parent).is_leaf) continue;
      for (int child = parent + 1; child < at(parent).end; child = at(child).end)
        children_.push_back(child);
    }
    children_begin_.push_back(children_.size());
  }
  /// The children of a module, from the first to the last; a leaf has none.
  [[nodiscard]] std::span<const int> children(int index) const {
    return {children_.data() + children_begin_[index],
            children_.data() + children_begin_[index + 1]};
  }

  int fetch(int module, bool is_forward) {
    const PieceRange pieces = at(module).is_leaf ? at(module).all : at(module).own;
    const int visit = static_cast<int>(trace_.visits.size());
    if (is_forward) trace_.num_calls += at(module).is_leaf ? calls_in(module) : is_call(module);
    trace_.visits.push_back({module, is_forward, true, pieces});
    trace_.events.push_back({TraceEvent::Kind::fetch, visit});
    return visit;
  }
  /// Counts the calls of a module and all below it.
  [[nodiscard]] int calls_in(int module) const {
    int calls = 0;
    for (int each = module; each < at(module).end; ++each) calls += is_call(each);
    return calls;
  }
  [[nodiscard]] int is_call(int module) const {
    return at(module).is_called && !at(module).is_part ? 1 : 0;
  }
  void release(int visit) { trace_.events.push_back({TraceEvent::Kind::release, visit}); }

  void forward(int index) {
    const bool hooked = at(index).is_called;
    const int visit = hooked ? fetch(index, true) : 0;
    for (const int child : children(index)) forward(child);
    if (hooked) release(visit);
  }

  /// Runs modules again up to `last`. The forward of `last` then has all that its backward needs:
  /// no hook follows it.
  void forward_again(int index, int last) {
    if (index == last) {
      trace_.visits[fetch(index, true)].holds = false;
      return;
    }
    const int visit = fetch(index, true);
    for (const int child : children(index))
      if (child <= last) forward_again(child, last);
    if (at(index).end <= last) release(visit);
  }

  /// The module whose backward first asks for what forward did not keep.
  [[nodiscard]] int last_that_saves(int index) const {
    for (const int child : children(index) | std::views::reverse) {
      const int found = last_that_saves(child);
      if (found != no_module) return found;
    }
    return children(index).empty() && at(index).saves ? index : no_module;
  }

  void backward(int index) {
    const Module& module = at(index);
    if (!module.has_gradient) return;
    int visit = no_module;
    if (module.is_called) visit = fetch(index, false);
    if (module.is_block && recompute_) {
      // No hooks in a leaf, but its modules are called again.
      if (module.is_leaf) {
        trace_.num_calls += calls_in(index) - 1;
      } else {
        block_ = index;
        trigger_ = last_that_saves(index);
      }
    }
    if (index == trigger_) {
      for (const int child : children(block_))
        if (child <= trigger_) forward_again(child, trigger_);
      trigger_ = no_module;
    }
    for (const int child : children(index) | std::views::reverse) backward(child);
    if (visit == no_module) return;
    if (module.is_first) {
      left_over_.push_back(visit);
    } else {
      release(visit);
    }
  }

  ModuleTrace& trace_;
  bool recompute_;
  std::vector<int> children_;                // of one module after the other
  std::vector<std::size_t> children_begin_;  // by module
  int block_ = no_module, trigger_ = no_module;
  std::vector<int> left_over_;
};

}  // namespace

ModuleTrace trace_modules(const ModelSpec& model, const ParameterTable& table,
                          const std::vector<Piece>& pieces, const TrainingConfig& config) {
  ModuleTrace trace;
  const ModuleTree tree(model, table, pieces, trace.modules);
  mark_leaves(model, config.leaf_modules, trace.modules);
  if (config.stage3_module_granularity_threshold > 0)
    mark_small(trace.modules, pieces, config.stage3_module_granularity_threshold, 0);
  trace.registered = register_pieces(model, table, pieces, trace.modules);
  const Tracer tracer(trace, config.recompute != Recompute::none);
  return trace;
}

const ModuleTrace& ModuleTraces::of(const ModelSpec& model, const ParameterTable& table,
                                    const TrainingConfig& config) {
  TrainingConfig traced = config;
  if (config.zero_stage < 3) {  // no hooks, no leaves
    traced.stage3_module_granularity_threshold = 0;
    traced.leaf_modules = {};
  }
  TraceKnobs knobs{traced.recompute != Recompute::none, traced.stage3_module_granularity_threshold,
                   traced.leaf_modules};
  const auto found = std::ranges::find(known_, knobs, &std::pair<TraceKnobs, ModuleTrace>::first);
  if (found != known_.end()) return found->second;
  ModuleTrace trace = trace_modules(model, table, cut_into_pieces(table), traced);
  return known_.emplace_back(std::move(knobs), std::move(trace)).second;
}

}  // namespace dstune::plan
