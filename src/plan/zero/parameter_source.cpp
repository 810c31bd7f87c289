#include "zero/parameter_source.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "zero/parameter_travel.hpp"

namespace dstune::plan {

/// Plays the modules' visits of a micro-step as the arithmetic asks for parameters: what each of
/// them gathers and releases.
class ModuleVisits {
 public:
  ModuleVisits(const ZeroContext& zero, const TracedGathers& traced)
      : layout_(zero.layout),
        traced_(traced),
        holds_linear_(!zero.config.memory_efficient_linear),
        runs_again_(zero.config.recompute != Recompute::none),
        whole_(zero, traced),
        travel_(zero, whole_),
        uses_(layout_.pieces().size(), 0),
        user_(layout_.pieces().size(), none) {}

  void begin_micro_step(const MicroStepGathers& gathers, bool after_update) {
    gathers_ = &gathers;
    next_ = 0;
    users_.assign(traced_.trace.visits.size(), 0);
    travel_.begin_micro_step(after_update);
  }
  void end_micro_step() const {
    require(next_ == traced_.trace.visits.size(), "every module is run");
    require(!whole_.is_any_held(), "what backward needs is let go behind it");
  }
  void use(PieceRange pieces);
  void done(PieceRange pieces);
  void run_again(bool again) { again_ = again; }
  [[nodiscard]] View view(int parameter) const { return whole_.view(parameter); }

 private:
  static constexpr int none = -1;

  void next_visit();
  void hold(int visit);
  [[nodiscard]] bool repeats(PieceRange pieces) const;
  void release(int visit);
  /// Linear layers keep what a forward visit gathered, without memory_efficient_linear.
  [[nodiscard]] bool is_held(const Visit& visit, int piece) const;
  [[nodiscard]] const Visit& visit_at(int index) const {
    return traced_.trace.visits[static_cast<std::size_t>(index)];
  }

  const Layout& layout_;
  const TracedGathers& traced_;
  bool holds_linear_;  // from forward to backward
  bool runs_again_;    // forward keeps nothing for backward before it is run again
  WholeParameters whole_;
  ParameterTravel travel_;

  const MicroStepGathers* gathers_ = nullptr;
  bool again_ = false;
  std::size_t next_ = 0;    // visit
  std::vector<int> uses_;   // by piece: still to come in the visit that uses it now
  std::vector<int> user_;   // by piece: the visit that uses it now, or none
  std::vector<int> users_;  // by visit: pieces still in use
};

void ModuleVisits::use(PieceRange pieces) {
  for (int piece = pieces.first; piece < pieces.last; ++piece)
    while (user_[static_cast<std::size_t>(piece)] == none) next_visit();
  while (repeats(pieces)) next_visit();
  for (int piece = pieces.first; piece < pieces.last; ++piece) {
    const int parameter = layout_.piece(piece).parameter;
    if (piece == layout_.piece_begin(parameter)) whole_.fill_gaps(parameter);
  }
}

bool ModuleVisits::repeats(PieceRange pieces) const {
  if (next_ == traced_.trace.visits.size()) return false;
  const Visit& visit = traced_.trace.visits[next_];
  return !visit.holds && visit.pieces.first <= pieces.first && pieces.first < visit.pieces.last;
}

void ModuleVisits::next_visit() {
  require(next_ < traced_.trace.visits.size(), "modules are run in the order of their trace");
  const int index = static_cast<int>(next_++);
  const Visit& visit = visit_at(index);
  travel_.read(gathers_->read[index]);
  travel_.gather(gathers_->fetched[index]);
  for (int piece = visit.pieces.first; piece < visit.pieces.last; ++piece) travel_.take(piece);
  if (visit.holds) hold(index);
  travel_.gather(gathers_->prefetched[index]);
  travel_.read(gathers_->read_ahead[index]);
}

void ModuleVisits::hold(int index) {
  const Visit& visit = visit_at(index);
  const std::vector<Module>& modules = traced_.trace.modules;
  const Module& module = modules[static_cast<std::size_t>(visit.module)];
  users_[static_cast<std::size_t>(index)] = visit.pieces.size();
  for (int piece = visit.pieces.first; piece < visit.pieces.last; ++piece)
    user_[static_cast<std::size_t>(piece)] = index;
  // A tied table is used twice in a leaf that holds both ends of the model.
  for (int each = visit.module; each < (module.is_leaf ? module.end : visit.module + 1); ++each) {
    const PieceRange own = modules[static_cast<std::size_t>(each)].own;
    for (int piece = own.first; piece < own.last; ++piece) ++uses_[static_cast<std::size_t>(piece)];
  }
}

void ModuleVisits::done(PieceRange pieces) {
  for (int piece = pieces.first; piece < pieces.last; ++piece) {
    int& user = user_[static_cast<std::size_t>(piece)];
    const int visit = user;
    const bool is_forward = visit_at(visit).is_forward;
    if (again_ && !is_forward) continue;
    if (--uses_[static_cast<std::size_t>(piece)] > 0) continue;
    user = none;
    if (!is_forward) whole_.let_go(layout_.piece(piece).parameter);
    if (--users_[static_cast<std::size_t>(visit)] == 0) release(visit);
  }
}

void ModuleVisits::release(int visit) {
  for (const int piece : gathers_->released[visit]) {
    if (!whole_.is_in_slab(piece)) continue;  // it is kept
    travel_.refresh_secondary(piece);
    whole_.release(piece, is_held(visit_at(visit), piece));
  }
}

bool ModuleVisits::is_held(const Visit& visit, int piece) const {
  if (!holds_linear_ || !visit.is_forward) return false;
  if (layout_.parameter(layout_.piece(piece).parameter).columns == 1) return false;  // a bias
  const std::vector<Module>& modules = traced_.trace.modules;
  const auto first = modules.begin() + visit.module;
  const auto last = first->is_leaf ? modules.begin() + first->end : std::next(first);
  return std::any_of(first, last, [&](const Module& module) {
    // Of what is run again the first forward keeps nothing.
    const bool is_recorded = again_ || !runs_again_ || module.layer < 0;
    return is_recorded && module.is_linear && module.own.first <= piece && piece < module.own.last;
  });
}

ParameterSource::ParameterSource(const ZeroContext& zero, const Gathering* gathering)
    : layout_(zero.layout), parameters_(zero.tensors.parameters) {
  if (gathering != nullptr) visits_ = std::make_unique<ModuleVisits>(zero, *gathering->traced);
}

ParameterSource::~ParameterSource() = default;

void ParameterSource::begin_micro_step(const MicroStepGathers& gathers, bool after_update) {
  visits_->begin_micro_step(gathers, after_update);
}

void ParameterSource::end_micro_step() {
  if (visits_) visits_->end_micro_step();
}

void ParameterSource::use(int unit, ParameterRole first, ParameterRole last) {
  if (visits_) visits_->use(find(unit, first, last));
}

void ParameterSource::done(int unit, ParameterRole first, ParameterRole last) {
  if (visits_) visits_->done(find(unit, first, last));
}

void ParameterSource::run_again(bool again) {
  if (visits_) visits_->run_again(again);
}

PieceRange ParameterSource::find(int unit, ParameterRole first, ParameterRole last) const {
  const int begin = layout_.table().find(unit, first);
  const int end = std::max(begin, layout_.table().find(unit, last));
  return layout_.pieces_of_parameters(begin, end + 1);
}

View ParameterSource::view(int unit, ParameterRole role) const {
  const int index = layout_.table().find(unit, role);
  if (index < 0) return {};
  return visits_ ? visits_->view(index) : at(parameters_, layout_.offset(index));
}

}  // namespace dstune::plan
