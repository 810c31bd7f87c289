#pragma once
/// The user's training command with the place of its configuration. Local.

#include <optional>
#include <string>
#include <vector>

#include "command/launch_options.hpp"
#include "command/shell_words.hpp"

namespace dstune {

/// The simple command that starts the training, inside a command that may hold several
/// ("cd x && deepspeed train.py $CONFIG | tee log").
class TrainingCommand {
 public:
  /// It is the first one with `$CONFIG`, else the only one; `$CONFIG` becomes `config_path`. No
  /// tuning is left on.
  TrainingCommand(const std::string& command, const std::string& config_path);

  /// Says why it can not be told where the configuration goes, or where `flags` go that are not
  /// there; empty if it can.
  [[nodiscard]] std::string ambiguity(const std::vector<std::string>& flags) const;
  [[nodiscard]] bool has_variable() const { return has_variable_; }

  [[nodiscard]] std::string text() const;
  /// The command's own words, variables set in front of it left out.
  [[nodiscard]] std::vector<std::string> words() const;
  /// The word behind a flag, or behind its "=", where both are there.
  [[nodiscard]] std::string value_of(const std::string& flag) const;
  /// Gives `flag` its value wherever it stands: "flag value" and "flag=value" are changed. False
  /// where it is not there.
  bool replace_value(const std::string& flag, const std::string& value, std::size_t from_word = 0);

  /// The same of a switch, which may stand alone: it is given its value then.
  bool set_switch(const std::string& flag, bool value, std::size_t from_word = 0);

  /// Changes words; they are counted as words() does.
  void apply(const WordEdits& edits);
  /// Behind the last word, in front of redirections.
  void append(const std::vector<std::string>& added);

 private:
  /// The place of a word, counted as words() does.
  [[nodiscard]] std::size_t place_of(std::size_t word) const;
  [[nodiscard]] std::size_t first_word() const;
  [[nodiscard]] std::optional<std::size_t> next_word(std::size_t index) const;
  [[nodiscard]] std::string hidden_place() const;
  void remove_everywhere(const std::string& flag);
  void remove_word(std::size_t index);
  void insert(std::size_t index, const std::vector<std::string>& added, bool space_in_front);

  std::vector<ShellPiece> pieces_;
  std::size_t begin_ = 0;  ///< of the command, …
  std::size_t end_ = 0;    ///< … behind its last piece
  bool has_variable_ = false;
  int num_marked_ = 0;       ///< simple commands with `$CONFIG`
  std::string compound_by_;  ///< what makes it more than one simple command; empty: nothing
};

/// The script's word, or its module's; 0 where neither can be told from the words in front.
[[nodiscard]] std::size_t script_word(const std::vector<std::string>& words);

/// Tells whether the word behind `--deepspeed` is the configuration's file.
[[nodiscard]] bool names_json(const std::string& word);
/// The flags of `accelerate launch` that name the configuration's file.
inline constexpr const char* accelerate_config_flags[] = {"--deepspeed_config_file",
                                                          "--deepspeed-config-file"};

}  // namespace dstune
