#pragma once
/// How a configuration is run, as space.json or the command line asks for it. The instrument of
/// that kind (dstune/instrument/instrument.hpp) does it.

#include <string>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

/// A word of the key /dstune/workload/type, in the order of its choices in keys.json. Those that
/// the program asks for have enumerators; the instruments are by the words.
enum class WorkloadKind { transformer, synthetic, replay, plugin, deepspeed };
[[nodiscard]] const EnumTexts& texts_of(WorkloadKind);

struct WorkloadSpec {
  WorkloadKind kind = WorkloadKind::transformer;
  double step_time_s = 0;  ///< synthetic: how long a step takes
  std::string table_path;  ///< replay
  json::Value table;       ///< replay: the table itself, name → row
  double time_scale = 0;   ///< replay: 1 waits as long as it took, 0 not at all
  /// plugin: its members as they are written, library among them. deepspeed: script, args,
  /// function, python and scratch, with absolute paths; what is not there is not given.
  json::Value options;
  std::string library_path;  ///< plugin: absolute
  std::string library_hash;  ///< plugin: of the file's content, which has passed the check
  /// deepspeed: the Hugging Face config.json of the model, where one is named.
  std::string model_config;

  /// Tells whether somebody else's code runs the configuration: every key of it may act.
  [[nodiscard]] bool takes_any_key() const {
    return kind == WorkloadKind::plugin || kind == WorkloadKind::deepspeed;
  }
};

}  // namespace dstune
