#pragma once
/// The modules of the Hugging Face model as DeepSpeed's stage 3 sees them, in the order in which
/// its hooks find them in a micro-step; and what it gathers and releases at each, how far ahead,
/// and what it keeps whole: its coordinator, played through on numbers alone.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dstune/core/training_config.hpp"
#include "dstune/model/module_names.hpp"
#include "zero/layout.hpp"

namespace dstune::plan {

/// Modules lie in the order in which forward enters them, each before its children.
struct Module {
  ModuleKind kind = ModuleKind::other;
  int layer = -1;
  PieceRange own;            ///< parameters of its own
  PieceRange all;            ///< with its children's
  int end = 0;               ///< index of the module after its last descendant
  bool is_called = true;     ///< false: a list of modules, which has no hooks
  bool has_gradient = true;  ///< false: backward does not pass it
  bool saves = true;         ///< keeps something for backward
  /// Its input has no gradient, so that the hook after its backward never fires.
  bool is_first = false;
  bool is_block = false;
  /// Gathers its children's parameters with its own; they have no hooks then.
  bool is_leaf = false;
  /// A torch.nn.Linear, whose forward may keep the weight.
  bool is_linear = false;
  /// Biases that belong to modules before it there: no module of the Hugging Face model.
  bool is_part = false;
};

/// A module found by a hook before forward or backward.
struct Visit {
  int module = 0;
  bool is_forward = true;
  /// False: forward is run again only as far as this module, which computes nothing any more.
  bool holds = true;
  PieceRange pieces;  ///< that it needs
};

struct TraceEvent {
  enum class Kind {
    fetch,     ///< the hook before
    release,   ///< the hook after
    left_over  ///< released at the end of backward, for want of a hook
  };
  Kind kind;
  int visit;
};

struct ModuleTrace {
  std::vector<Module> modules;
  std::vector<Visit> visits;  ///< in the order of their fetch
  std::vector<TraceEvent> events;
  /// All pieces in the order in which the model registers its parameters, unit after unit.
  std::vector<int> registered;
  // Counts of a micro-step.
  int num_calls = 0;  ///< forward calls of modules, in leaves and when forward is run again, too
  int num_hooks = 0;  ///< fetches and releases of modules with parameters
};

/// Checked against traces of DeepSpeed 0.19.6 itself (scripts/tools/deepspeed_gathers.py).
[[nodiscard]] ModuleTrace trace_modules(const ModelSpec& model, const ParameterTable& table,
                                        const std::vector<Piece>& pieces,
                                        const TrainingConfig& config);

/// The knobs that a trace depends on.
struct TraceKnobs {
  bool recomputes = false;
  std::int64_t granularity = 0;
  LeafModules leaf_modules{};
  bool operator==(const TraceKnobs&) const = default;
};

/// Those of one model's plans where nothing is gathered.
class ModuleTraces {
 public:
  /// Returns the same as trace_modules. The reference holds until the next call.
  const ModuleTrace& of(const ModelSpec& model, const ParameterTable& table,
                        const TrainingConfig& config);

 private:
  std::vector<std::pair<TraceKnobs, ModuleTrace>> known_;
};

/// A shard comes from the disk into a buffer.
struct ShardRead {
  int piece, buffer;
};

/// A list for each visit. There are thousands of visits and few entries: all lie in one array.
template <class Entry>
class VisitLists {
 public:
  /// In any order of visits; before `sort` only.
  void add(int visit, Entry entry) { added_.push_back({visit, entry}); }
  /// Sorts entries by visit; those of one visit keep the order in which they were added.
  void sort(std::size_t num_visits) {
    begin_.assign(num_visits + 1, 0);
    // Counts become beginnings, these ends as entries are put down, and those beginnings again.
    for (const Added& each : added_) ++begin_[each.visit];
    int end = 0;
    for (int& begin : begin_) begin = std::exchange(end, end + begin);
    entries_.resize(added_.size());
    for (const Added& each : added_) entries_[begin_[each.visit]++] = each.entry;
    for (std::size_t visit = num_visits; visit > 0; --visit) begin_[visit] = begin_[visit - 1];
    begin_[0] = 0;
    added_ = {};
  }
  [[nodiscard]] std::span<const Entry> operator[](int visit) const {
    const int* begin = &begin_[visit];
    return std::span(entries_).subspan(begin[0], begin[1] - begin[0]);
  }

 private:
  struct Added {
    int visit;
    Entry entry;
  };
  std::vector<Added> added_;
  std::vector<int> begin_;
  std::vector<Entry> entries_;
};

/// The gathers, reads and releases at each visit of a micro-step; pieces in the flat order.
struct MicroStepGathers {
  VisitLists<ShardRead> read;  ///< before what is fetched is gathered, which waits for all reads
  VisitLists<int> fetched;     ///< gathered now, because they are needed now
  VisitLists<int> prefetched;  ///< gathered for later modules, after the needed ones are there
  VisitLists<ShardRead> read_ahead;  ///< then, for gathers that come after those
  VisitLists<int> released;          ///< when the visit is over
};

struct GatherLimits {
  std::int64_t prefetch_bucket = 0, max_live = 0, max_reuse = 0;  ///< elements
};

/// Shards on a disk, each of which takes a buffer from its reading until its piece is released.
struct ShardBuffers {
  std::vector<bool> on_disk;  ///< by piece; none: no shard is
  std::int64_t count = 0;
};

class GatherSchedule {
 public:
  /// `kept`: of each piece, whether it stays whole once it has been gathered. All outlive this and
  /// its copies.
  GatherSchedule(const ModuleTrace& trace, const std::vector<Piece>& pieces,
                 const std::vector<bool>& kept, ShardBuffers buffers = {});

  /// The first micro-step of all: nothing is gathered ahead, nothing stays.
  MicroStepGathers trace_micro_step();
  /// Plans the next micro-step. The first of these decides when pieces are released; that holds
  /// from then on.
  MicroStepGathers micro_step(const GatherLimits& limits);
  /// The update has gathered what is kept and released everything else.
  void update();
  /// Says why DeepSpeed fails when it reads ahead; empty if it does not. If it does, nothing that
  /// was planned holds any more.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  /// Buffers for shards on the disk that were taken together: beyond those that are given,
  /// DeepSpeed fails.
  [[nodiscard]] std::int64_t num_buffers() const { return num_buffers_; }

 private:
  enum class Status : std::uint8_t { partitioned, in_flight, available };

  void begin();
  void fetch(int visit, MicroStepGathers& gathers);
  void prefetch(int visit, MicroStepGathers& gathers);
  void read_ahead(int visit, MicroStepGathers& gathers);
  void take_buffer(int piece, int visit, VisitLists<ShardRead>& reads);
  void free_buffer(int piece);
  /// Its shard is on the disk and neither in a buffer nor on its way there.
  [[nodiscard]] bool is_absent(int piece) const;
  void release(int visit, MicroStepGathers& gathers, bool even_kept);
  void release_piece(int piece, int visit, MicroStepGathers& gathers);
  void decide_and_release(int visit, MicroStepGathers& gathers);
  void sort(MicroStepGathers& gathers) const;
  [[nodiscard]] bool stays(int visit, int piece) const;
  [[nodiscard]] bool is_reused(const Visit& visit, int piece) const;
  [[nodiscard]] PieceRange pieces_of(int visit) const { return trace_.visits[visit].pieces; }
  [[nodiscard]] std::int64_t elements(int piece) const { return pieces_[piece].elements; }

  /// The visits at which pieces occur in the trace: of modules' own parameters, or with their
  /// children's.
  struct Occurrences {
    std::vector<int> begin;                     // by piece, into `visits`
    std::vector<int> visits;                    // ascending
    std::vector<std::int64_t> elements_before;  // by visit: of all visits before it
  };
  [[nodiscard]] Occurrences find_occurrences(bool with_children) const;

  const ModuleTrace& trace_;
  const std::vector<Piece>& pieces_;
  const std::vector<bool>& kept_;
  GatherLimits limits_;
  Occurrences own_, all_;

  std::vector<Status> status_;    // by piece
  std::vector<int> fetched_for_;  // by piece: the latest visit that it was taken off the queue for
  int step_ = 0;                  // visits fetched so far
  std::int64_t live_ = 0;
  struct Queued {
    int piece, visit;
  };
  std::vector<Queued> order_;
  std::size_t next_ = 0;     // of order_
  bool is_decided_ = false;  // what is released when, once and for all
  VisitLists<int> decided_;
  std::vector<int> taken_;  // by a prefetch

  ShardBuffers buffers_;
  std::int64_t num_buffers_;  // given, and those that would be needed beside them
  std::vector<int> buffer_;   // by piece: that holds its shard, or none
  std::vector<int> free_;     // buffers, the last one is taken first
  std::string failure_;
};

/// The model as it is traced in the first micro-step of all, and what of it stays whole: all that
/// does not depend on how far ahead is gathered later on.
struct TracedGathers {
  std::vector<Piece> pieces;
  ModuleTrace trace;
  /// Tells for each piece whether it stays whole from its first use on; the update gathers such
  /// pieces anew.
  std::vector<bool> kept;
  /// Offset by piece, in a tensor of `kept_elements` elements. The pieces of a parameter that is
  /// kept as a whole lie one after another.
  std::vector<std::int64_t> kept_offset;
  std::int64_t kept_elements = 0;
  std::vector<bool> kept_whole;  ///< by parameter: all pieces of it are kept
  MicroStepGathers first;        ///< of the first micro-step of all
  /// The schedule of the trace above, behind that micro-step; none if it fails.
  std::optional<GatherSchedule> schedule;
  std::string failure;
};

struct Gathering {
  std::shared_ptr<const TracedGathers> traced;
  /// The reason why DeepSpeed could not run it; the step can not be planned then.
  std::string failure;
  std::int64_t num_buffers = 0;  ///< for shards on the disk: that were taken together

  MicroStepGathers second;  ///< of the second, where it belongs to the first optimizer step, too
  MicroStepGathers steady;  ///< of every later one
};

/// Places the pieces that are kept.
void place_kept(const Layout& layout, TracedGathers& traced);

/// Says why DeepSpeed's quantisation of weights would fail; empty if it would not.
[[nodiscard]] std::string weights_violation(const Layout& layout, const Gathering& gathering,
                                            const TrainingConfig& config);

/// Plans the gathers of a layout; requires layout.gathers().
[[nodiscard]] Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                                       const TrainingConfig& config);

/// Those of one model's plans: configurations that gather alike share one, and those that differ in
/// how far ahead share what is traced. Most spaces have few.
class Gatherings {
 public:
  /// Returns the same as plan_gathering. The reference holds until the next call.
  const Gathering& of(const ModelSpec& model, const Layout& layout, const TrainingConfig& config);

 private:
  /// All that a gathering depends on, where no parameter is on a disk.
  struct TracingKnobs {
    bool recomputes;
    std::int64_t granularity, persistent_parameter, persistent_model;
    int group_size;
    bool quantizes_weights;
    std::int64_t shards_of_secondary;
    LeafModules leaf_modules;
    bool operator==(const TracingKnobs&) const = default;
  };
  struct Knobs {
    TracingKnobs tracing;
    bool accumulates, is_sequential;
    std::int64_t prefetch_bucket, max_live, max_reuse;
    bool operator==(const Knobs&) const = default;
  };
  struct Known {
    Knobs knobs;
    Gathering gathering;
  };
  static constexpr std::size_t max_known = 32;

  std::vector<Known> known_;
  std::size_t next_ = 0;  ///< the one that makes room
  Gathering from_disk_;
};

}  // namespace dstune::plan
