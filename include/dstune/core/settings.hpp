#pragma once
/// The keys of a DeepSpeed config that are understood, as a table of knobs, and one config by its
/// rows. Local.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/keys.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

/// A row of the table: a key of a DeepSpeed config.
struct Knob : Key {
  /// The effect of a value; only where it is measured.
  std::function<void(TrainingConfig&, const KnobValue&)> apply{};
};

/// The keys of a release of DeepSpeed, sections before their members. A list of fixed length has a
/// row for each element ("/optimizer/params/betas/0").
class KnobTable : public KeyTable {
 public:
  /// `others`: those that only other releases know.
  KnobTable(Version release, std::vector<Knob> knobs, const std::vector<Knob>& others);

  [[nodiscard]] Version release() const { return release_; }
  /// All rows, by their numbers.
  [[nodiscard]] const std::vector<Knob>& knobs() const { return knobs_; }
  /// The row of a pointer, or null.
  [[nodiscard]] const Knob* find_knob(std::string_view pointer) const;
  using KeyTable::default_value;
  [[nodiscard]] const KnobValue& default_value(const Knob& knob) const;

  using Rows = std::vector<std::size_t>;
  // Rows that are asked for again and again: that set something, …
  [[nodiscard]] const Rows& acting() const { return acting_; }
  [[nodiscard]] const Rows& refused() const { return refused_; }
  [[nodiscard]] const Rows& needing() const { return needing_; }          ///< keys beside them
  [[nodiscard]] const Rows& other_names() const { return other_names_; }  ///< that stand alone
  [[nodiscard]] std::size_t stage() const { return stage_; }              ///< of ZeRO
  /// The defaults of all rows that act.
  [[nodiscard]] const TrainingConfig& usual() const { return usual_; }

 private:
  Version release_;
  std::vector<Knob> knobs_;
  Rows acting_, refused_, needing_, other_names_;
  std::size_t stage_ = 0;
  TrainingConfig usual_;
};

/// The table for a version: that of known_release().
[[nodiscard]] const KnobTable& knob_table(Version version);
/// The keys of all releases, as they are in the last one that knows them.
[[nodiscard]] const KnobTable& every_knob();

/// The value that a config has for one row.
struct Setting {
  std::size_t row = 0;  ///< of the release's table
  KnobValue value;      ///< the default where it is not given; objects, most lists: none
  Presence presence = Presence::absent;
  bool is_read = true;  ///< false: the document has a value that could not be read
  bool operator==(const Setting&) const = default;
};

/// A config's JSON, typed. It is between JSON and TrainingConfig, so that members of a large
/// space differ by a few assignments and are checked without reading JSON again.
class Settings {
 public:
  /// Every row at its default, none given.
  explicit Settings(const KnobTable& table);

  [[nodiscard]] const KnobTable& table() const { return *table_; }

  void apply(const std::vector<Setting>& changes);

  [[nodiscard]] const KnobValue& value(std::size_t row) const {
    note_use(row);
    return values_[row];
  }
  [[nodiscard]] bool is_given(std::size_t row) const {
    note_use(row);
    return presence_[row] == Presence::given;
  }

  // Values by pointer; where a key has several names, that of the one that is written. A key that
  // only other releases know is not written, and has their default. Throws LogicError where none
  // knows it.
  [[nodiscard]] const KnobValue& value(std::string_view pointer) const;
  [[nodiscard]] bool is_given(std::string_view pointer) const;
  /// Given or "auto".
  [[nodiscard]] bool is_there(std::string_view pointer) const;
  /// Given, null or "auto".
  [[nodiscard]] bool is_written(std::string_view pointer) const;
  /// Given or null: to DeepSpeed a model's member is set, which "auto" is not.
  [[nodiscard]] bool is_set(std::string_view pointer) const;
  [[nodiscard]] bool is_set(std::size_t row) const;
  /// A boolean that is true.
  [[nodiscard]] bool is_on(std::string_view pointer) const;
  /// An integer or a number; not to be asked for where it is not given and has no default.
  [[nodiscard]] double number(std::string_view pointer) const;
  /// An integer; nothing where it is not given and has no default.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view pointer) const;
  /// A text in lower case; empty where it is not given and has no default.
  [[nodiscard]] std::string word(std::string_view pointer) const;
  [[nodiscard]] int zero_stage() const;
  /// The row of a key by the name that is written; nothing where the release has none.
  [[nodiscard]] std::optional<std::size_t> row_of(std::string_view pointer) const;

  /// Calls `judge` and tells whether it asked for a value that could not be read: what follows from
  /// such a value is no finding of its own.
  template <class Judge>
  bool uses_unread(const Judge& judge) const {
    has_used_unread_ = false;
    judge();
    return has_used_unread_;
  }

 private:
  [[nodiscard]] Presence presence(std::string_view pointer) const;
  void note_use(std::size_t row) const {
    if (!unread_.empty() && unread_[row]) has_used_unread_ = true;
  }

  const KnobTable* table_;
  std::vector<KnobValue> values_;
  std::vector<Presence> presence_;
  std::vector<bool> unread_;  ///< empty: every value could be read
  mutable bool has_used_unread_ = false;
};

/// Values that the user's training writes in the place of "auto", by pointer. Other keys take their
/// default.
using AutoValues = std::map<std::string, KnobValue, std::less<>>;

/// `precision`: of bf16 and fp16; nothing: their defaults. `hidden_size`: of a model that Hugging
/// Face's Trainer trains (transformers, HfTrainerDeepSpeedConfig.trainer_config_finalize, and
/// TrainingArguments' default max_grad_norm); nothing: another training.
[[nodiscard]] AutoValues auto_values(std::optional<Precision> precision,
                                     std::optional<std::int64_t> hidden_size);

/// Returns the settings of the row of `node`, which stands at its place in a DeepSpeed config, and
/// of all rows below it. Rows that it does not hold have their defaults. No lists of candidates;
/// null stands for the default. Adds problems: wrong types, values out of range, unknown keys
/// inside sections that DeepSpeed closes. The sections `autotuning` and `dstune` and unknown
/// top-level keys are skipped. `automatic`: what "auto" stands for. `unchecked`: where there is
/// one, it gets the wrong values that DeepSpeed takes without a look and the built-in step does not
/// act on.
std::vector<Setting> read_settings(const KnobTable& table, const json::Node& node,
                                   json::Problems& problems, const AutoValues& automatic = {},
                                   json::Problems* unchecked = nullptr);

/// refused: the release refuses it. fails: it takes the config, and the training fails with it.
/// unbuilt: DeepSpeed runs it, the built-in step does not.
enum class Weight : std::uint8_t { refused, fails, unbuilt };

/// Something that a config can not have, though each of its values is valid by itself.
struct Violation {
  std::string pointer;  ///< the key to be changed
  std::string message;  ///< what is wrong, with a hint
  Weight weight = Weight::refused;
  /// DeepSpeed's config takes it, the built-in step does not.
  [[nodiscard]] bool is_unbuilt() const { return weight != Weight::refused; }
  bool operator==(const Violation&) const = default;
};

/// Returns the combinations that the release refuses, and the settings that the step does not
/// follow. The latter are `refused` rows with another value than their default, at a stage where
/// they act.
[[nodiscard]] std::vector<Violation> violations_of(const Settings& settings);

/// A training beside its config.
struct KeyUse {
  bool reads_checkpointing = false;  ///< it calls deepspeed.checkpointing
  bool is_on_cpu = false;            ///< DeepSpeed's accelerator is the CPU
};

/// Returns the keys that are given with another value than their default and have no effect in this
/// config, with the reason.
[[nodiscard]] std::vector<Violation> idle_keys(const Settings& settings, const KeyUse& use);

/// The configuration of a step as the release runs it. Batch sizes, sequence length and recompute
/// are the caller's.
[[nodiscard]] TrainingConfig training_config(const Settings& settings);

/// A whole config without lists of candidates: read_settings() and violations_of() in one. `node`
/// is the config's root object.
[[nodiscard]] Settings read_config(const KnobTable& table, const json::Node& node,
                                   json::Problems& problems, const AutoValues& automatic = {});

/// Takes out of a config what the release refuses to see and what had no effect in those that knew
/// it: `amp` that is not enabled, mics_shard_size -1. Returns a note of each.
std::vector<std::string> drop_without_effect(const KnobTable& table, json::Value& config);

/// Writes out keys that are not there, act on the step, and have other defaults in other releases,
/// or may have in `version`. So the config means the same in all. Returns the pointers.
std::vector<std::string> write_out_defaults(Version version, int zero_stage, json::Value& config);

}  // namespace dstune
