#pragma once
/// The modules of the Hugging Face model as DeepSpeed's stage 3 sees them, and the order in which
/// its hooks find them in one micro-step. Checked against traces of DeepSpeed 0.19.6 itself
/// (scripts/deepspeed_gathers.py).

#include <cstdint>
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
};

[[nodiscard]] ModuleTrace trace_modules(const ModelSpec& model, const ParameterTable& table,
                                        const std::vector<Piece>& pieces,
                                        const TrainingConfig& config);

}  // namespace dstune::plan
