#include "zero/gathering.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "zero/disk.hpp"

namespace dstune::plan {
namespace {

constexpr int never = -1;
constexpr int no_buffer = -1;

}  // namespace

GatherSchedule::GatherSchedule(const ModuleTrace& trace, const std::vector<Piece>& pieces,
                               const std::vector<bool>& kept, ShardBuffers buffers)
    : trace_(trace),
      pieces_(pieces),
      kept_(kept),
      own_(find_occurrences(false)),
      status_(pieces.size(), Status::partitioned),
      fetched_for_(pieces.size(), never),
      buffers_(std::move(buffers)),
      num_buffers_(buffers_.count),
      buffer_(buffers_.on_disk.size(), no_buffer) {
  for (int buffer = 0; buffer < buffers_.count; ++buffer) free_.push_back(buffer);
  const bool any_leaf = std::any_of(trace.modules.begin(), trace.modules.end(),
                                    [](const Module& module) { return module.is_leaf; });
  if (any_leaf) all_ = find_occurrences(true);
  for (std::size_t visit = 0; visit < trace.visits.size(); ++visit) {
    const PieceRange range = trace.visits[visit].pieces;
    const auto add = [&](int piece) { order_.push_back({piece, static_cast<int>(visit)}); };
    if (trace.modules[trace.visits[visit].module].is_leaf) {
      for (const int piece : trace.registered)
        if (range.contains(piece)) add(piece);
    } else {
      for (const int piece : range) add(piece);
    }
  }
}

GatherSchedule::Occurrences GatherSchedule::find_occurrences(bool with_children) const {
  const auto range_of = [&](const Visit& visit) {
    const Module& module = trace_.modules[visit.module];
    return with_children ? module.all : module.own;
  };
  Occurrences found;
  found.begin.assign(pieces_.size() + 1, 0);
  for (const Visit& visit : trace_.visits)
    for (const int piece : range_of(visit)) ++found.begin[piece + 1];
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece)
    found.begin[piece + 1] += found.begin[piece];
  found.visits.resize(found.begin.back());
  std::vector<int> end(found.begin.begin(), found.begin.end() - 1);
  std::int64_t elements_before = 0;
  found.elements_before.reserve(trace_.visits.size());
  for (std::size_t visit = 0; visit < trace_.visits.size(); ++visit) {
    found.elements_before.push_back(elements_before);
    for (const int piece : range_of(trace_.visits[visit])) {
      int& next = end[piece];
      found.visits[next++] = static_cast<int>(visit);
      elements_before += elements(piece);
    }
  }
  return found;
}

void GatherSchedule::begin() {
  std::fill(fetched_for_.begin(), fetched_for_.end(), never);
  step_ = 0;
  live_ = 0;
  next_ = 0;
}

MicroStepGathers GatherSchedule::trace_micro_step() {
  begin();
  MicroStepGathers result;
  for (const TraceEvent& event : trace_.events) {
    if (event.kind == TraceEvent::Kind::fetch) {
      fetch(event.visit, result);
      ++step_;
    } else {
      release(event.visit, result, event.kind == TraceEvent::Kind::release);
    }
  }
  sort(result);
  return result;
}

MicroStepGathers GatherSchedule::micro_step(const GatherLimits& limits) {
  limits_ = limits;
  begin();
  MicroStepGathers result;
  for (const TraceEvent& event : trace_.events) {
    if (event.kind == TraceEvent::Kind::fetch) {
      fetch(event.visit, result);
      prefetch(event.visit, result);
      if (limits_.prefetch_bucket > 0) read_ahead(event.visit, result);
      ++step_;
    } else if (event.kind == TraceEvent::Kind::left_over) {
      release(event.visit, result, false);
    } else if (is_decided_) {
      for (const int piece : decided_[event.visit]) release_piece(piece, event.visit, result);
    } else {
      decide_and_release(event.visit, result);
    }
  }
  if (!is_decided_) decided_.sort(trace_.visits.size());
  is_decided_ = true;
  // DeepSpeed would keep what an early decision forgot until it is used again.
  const int last_visit = static_cast<int>(trace_.visits.size()) - 1;
  for (std::size_t piece = 0; piece < status_.size(); ++piece) {
    require(status_[piece] != Status::in_flight, "all that is gathered ahead is used");
    if (status_[piece] == Status::available && !kept_[piece])
      release_piece(static_cast<int>(piece), last_visit, result);
    require(!failure_.empty() || buffer_.empty() || buffer_[piece] == no_buffer,
            "all that is read ahead is used");
  }
  sort(result);
  return result;
}

void GatherSchedule::update() {
  for (std::size_t piece = 0; piece < status_.size(); ++piece)
    status_[piece] = kept_[piece] ? Status::available : Status::partitioned;
}

void GatherSchedule::sort(MicroStepGathers& gathers) const {
  const std::size_t count = trace_.visits.size();
  for (VisitLists<ShardRead>* reads : {&gathers.read, &gathers.read_ahead}) reads->sort(count);
  for (VisitLists<int>* pieces : {&gathers.fetched, &gathers.prefetched, &gathers.released})
    pieces->sort(count);
}

void GatherSchedule::fetch(int visit, MicroStepGathers& gathers) {
  for (const int piece : pieces_of(visit)) {
    Status& status = status_[piece];
    if (status == Status::partitioned) {
      if (is_absent(piece)) take_buffer(piece, visit, gathers.read);
      gathers.fetched.add(visit, piece);
      live_ += elements(piece);
    }
    status = Status::available;
  }
}

void GatherSchedule::prefetch(int visit, MicroStepGathers& gathers) {
  int not_taken = 0;
  for (const int piece : pieces_of(visit))
    if (fetched_for_[piece] < step_) ++not_taken;
  for (; not_taken > 0 && next_ < order_.size(); --not_taken, ++next_)
    fetched_for_[order_[next_].piece] = order_[next_].visit;
  if (limits_.prefetch_bucket <= 0) return;
  const std::int64_t most = std::min(limits_.max_live - live_, limits_.prefetch_bucket);
  std::int64_t ahead = 0;
  taken_.clear();
  for (; next_ < order_.size() && ahead < most; ++next_) {
    const Queued& queued = order_[next_];
    // A shard that is read from the disk first is gathered at a later visit.
    if (is_absent(queued.piece)) break;
    int& latest = fetched_for_[queued.piece];
    latest = std::max(latest, queued.visit);
    Status& status = status_[queued.piece];
    if (status != Status::partitioned) continue;
    status = Status::in_flight;
    taken_.push_back(queued.piece);
    ahead += elements(queued.piece);
  }
  live_ += ahead;
  std::sort(taken_.begin(), taken_.end());
  for (const int piece : taken_) gathers.prefetched.add(visit, piece);
}

void GatherSchedule::decide_and_release(int visit, MicroStepGathers& gathers) {
  for (const int piece : pieces_of(visit)) {
    if (stays(visit, piece)) continue;
    decided_.add(visit, piece);
    release_piece(piece, visit, gathers);
  }
}

void GatherSchedule::release(int visit, MicroStepGathers& gathers, bool even_kept) {
  for (const int piece : pieces_of(visit))
    if (even_kept || !kept_[piece]) release_piece(piece, visit, gathers);
}

void GatherSchedule::release_piece(int piece, int visit, MicroStepGathers& gathers) {
  Status& status = status_[piece];
  if (status != Status::available) return;
  status = Status::partitioned;
  live_ -= elements(piece);
  gathers.released.add(visit, piece);
  free_buffer(piece);
}

bool GatherSchedule::is_absent(int piece) const {
  return !buffers_.on_disk.empty() && buffers_.on_disk[piece] && buffer_[piece] == no_buffer;
}

void GatherSchedule::take_buffer(int piece, int visit, VisitLists<ShardRead>& reads) {
  if (free_.empty()) free_.push_back(static_cast<int>(num_buffers_++));
  buffer_[piece] = free_.back();
  reads.add(visit, {piece, free_.back()});
  free_.pop_back();
}

void GatherSchedule::free_buffer(int piece) {
  if (buffer_.empty() || buffer_[piece] == no_buffer) return;
  free_.push_back(buffer_[piece]);
  buffer_[piece] = no_buffer;
}

void GatherSchedule::read_ahead(int visit, MicroStepGathers& gathers) {
  if (buffers_.on_disk.empty()) return;
  std::int64_t in_flight = 0;
  for (std::size_t piece = 0; piece < status_.size(); ++piece)
    if (status_[piece] == Status::in_flight) in_flight += pieces_[piece].elements;
  const std::size_t available = free_.size();
  std::int64_t considered = 0;
  std::vector<int> chosen;
  for (std::size_t next = next_; next < order_.size(); ++next) {
    if (considered > 2 * in_flight || chosen.size() >= available) break;
    const int piece = order_[next].piece;
    if (is_absent(piece)) chosen.push_back(piece);
    considered += elements(piece);
  }
  for (const int piece : chosen) {
    if (is_absent(piece)) {
      take_buffer(piece, visit, gathers.read_ahead);
    } else {
      failure_ =
          "DeepSpeed fails when it reads ahead from the disk: a parameter that is used twice is "
          "read twice";
    }
  }
}

bool GatherSchedule::stays(int visit, int piece) const {
  // One that the queue has passed over for a later use is not gathered again for it.
  return kept_[piece] || fetched_for_[piece] > step_ || is_reused(trace_.visits[visit], piece);
}

bool GatherSchedule::is_reused(const Visit& visit, int piece) const {
  const bool leaf = trace_.modules[visit.module].is_leaf;
  const Occurrences& found = leaf ? all_ : own_;
  const auto begin = found.visits.begin() + found.begin[piece];
  const auto end = found.visits.begin() + found.begin[piece + 1];
  const auto next = std::lower_bound(begin, end, step_);
  if (next == end) return false;
  const std::int64_t distance = found.elements_before[*next] - found.elements_before[step_];
  return distance < limits_.max_reuse;
}

namespace {

void choose_kept(const TrainingConfig& config, TracedGathers& traced) {
  const std::vector<Piece>& pieces = traced.pieces;
  traced.kept.assign(pieces.size(), false);
  std::int64_t sum = 0;
  for (const int piece : traced.trace.registered) {
    const std::int64_t elements = pieces[piece].elements;
    // Without an overflow: the threshold is the largest integer where there is none.
    if (elements > config.stage3_param_persistence_threshold ||
        elements > config.stage3_model_persistence_threshold - sum) {
      continue;
    }
    traced.kept[piece] = true;
    sum += elements;
  }
}

}  // namespace

void place_kept(const Layout& layout, TracedGathers& traced) {
  const std::vector<Piece>& pieces = traced.pieces;
  traced.kept_offset.assign(pieces.size(), -1);
  traced.kept_whole.assign(layout.num_parameters(), false);
  std::int64_t& end = traced.kept_elements;
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const PieceRange range = layout.pieces_of_parameter(index);
    const bool whole =
        std::all_of(range.begin(), range.end(), [&](int piece) { return traced.kept[piece]; });
    traced.kept_whole[index] = whole;
    for (const int piece : range) {
      if (!traced.kept[piece]) continue;
      traced.kept_offset[piece] = end;
      // Shards arrive with their padding, which the next piece overwrites.
      const bool adjoins = whole && piece + 1 < range.last;
      end += adjoins ? pieces[piece].elements
                     : layout.piece_shard_elements(piece) * layout.group_size();
    }
  }
}

namespace {

std::shared_ptr<const TracedGathers> trace_gathers(const ModelSpec& model, const Layout& layout,
                                                   const TrainingConfig& config) {
  const auto result = std::make_shared<TracedGathers>();
  TracedGathers& traced = *result;
  traced.pieces = layout.pieces();
  traced.trace = trace_modules(model, layout.table(), traced.pieces, config);
  choose_kept(config, traced);
  place_kept(layout, traced);
  ShardBuffers buffers;
  if (are_parameters_on_disk(config))
    buffers = {find_shards_on_disk(layout, config), config.disk.parameter_buffers};
  for (std::size_t piece = 0; piece < buffers.on_disk.size(); ++piece) {
    if (!buffers.on_disk[piece] || !traced.kept[piece]) continue;
    traced.failure =
        "stage3_param_persistence_threshold keeps a parameter whole whose shard is on the disk, "
        "which is not built in dstune-mpi";
    return result;
  }
  traced.schedule.emplace(traced.trace, traced.pieces, traced.kept, std::move(buffers));
  traced.first = traced.schedule->trace_micro_step();
  return result;
}

Gathering gather_ahead(std::shared_ptr<const TracedGathers> traced, const Layout& layout,
                       const TrainingConfig& config) {
  Gathering gathering;
  gathering.traced = std::move(traced);
  gathering.failure = gathering.traced->failure;
  if (!gathering.failure.empty()) return gathering;
  const GatherLimits limits{
      // One parameter ahead: DeepSpeed writes 1 over the user's value.
      config.stage3_allgather_sequential ? 1 : config.stage3_prefetch_bucket_size,
      config.stage3_max_live_parameters, config.stage3_max_reuse_distance};
  GatherSchedule schedule = *gathering.traced->schedule;
  if (config.accumulation_steps > 1) gathering.second = schedule.micro_step(limits);
  schedule.update();
  gathering.steady = schedule.micro_step(limits);
  gathering.failure = schedule.failure();
  gathering.num_buffers = schedule.num_buffers();
  if (gathering.failure.empty()) gathering.failure = weights_violation(layout, gathering, config);
  return gathering;
}

}  // namespace

Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                         const TrainingConfig& config) {
  Gathering gathering = gather_ahead(trace_gathers(model, layout, config), layout, config);
  const std::int64_t given = config.disk.parameter_buffers;
  if (gathering.num_buffers <= given) return gathering;
  // With more buffers more is read ahead, which may take more of them.
  TrainingConfig larger = config;
  Gathering enough = gathering;
  while (enough.failure.empty() && enough.num_buffers > larger.disk.parameter_buffers) {
    larger.disk.parameter_buffers = enough.num_buffers;
    enough = gather_ahead(trace_gathers(model, layout, larger), layout, larger);
  }
  gathering.failure =
      !enough.failure.empty()
          ? enough.failure
          : fmt::format(
                "DeepSpeed runs out of buffers for parameters: offload_param.buffer_count "
                "is {}, and {} are needed: write {}",
                given, enough.num_buffers, enough.num_buffers);
  return gathering;
}

const Gathering& Gatherings::of(const ModelSpec& model, const Layout& layout,
                                const TrainingConfig& config) {
  if (are_parameters_on_disk(config)) return from_disk_ = plan_gathering(model, layout, config);
  const Knobs knobs{
      {config.recompute != Recompute::none, config.stage3_module_granularity_threshold,
       config.stage3_param_persistence_threshold, config.stage3_model_persistence_threshold,
       layout.group_size(), quantizes_weights(config), layout.shards_of_secondary(),
       config.leaf_modules},
      config.accumulation_steps > 1,
      config.stage3_allgather_sequential,
      config.stage3_prefetch_bucket_size,
      config.stage3_max_live_parameters,
      config.stage3_max_reuse_distance};
  std::shared_ptr<const TracedGathers> traced;
  for (const Known& known : known_) {
    if (known.knobs == knobs) return known.gathering;
    if (known.knobs.tracing == knobs.tracing) traced = known.gathering.traced;
  }
  if (traced == nullptr) traced = trace_gathers(model, layout, config);
  if (known_.size() < max_known) known_.emplace_back();
  Known& known = known_[next_];
  next_ = (next_ + 1) % max_known;
  known = {knobs, gather_ahead(std::move(traced), layout, config)};
  return known.gathering;
}

}  // namespace dstune::plan
