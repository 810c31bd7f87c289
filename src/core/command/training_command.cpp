#include "command/training_command.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/launch_line.hpp"

namespace dstune {

namespace {

using Kind = ShellPiece::Kind;
using Pieces = std::vector<ShellPiece>;

ShellPiece quoted_word(const std::string& text) {
  return {Kind::word, shell_quote(text), text};
}

bool is_end(const ShellPiece& piece) {
  return piece.kind == Kind::control || piece.kind == Kind::comment;
}

/// NAME=value in front of a command.
bool sets_variable(const ShellPiece& word) {
  const std::string name = word.raw.substr(0, word.raw.find('='));
  if (name.size() == word.raw.size() || name.empty()) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_';
  });
}

Pieces::iterator at(Pieces& pieces, std::size_t index) {
  return pieces.begin() + static_cast<std::ptrdiff_t>(index);
}

/// A word that may stand behind a switch as its value.
bool is_truth(std::string_view word) {
  constexpr std::array<std::string_view, 10> truths{"true", "false", "yes", "no", "y",
                                                    "n",    "t",     "f",   "1",  "0"};
  return std::ranges::find(truths, lower_case(word)) != truths.end();
}

/// "a pipe"
std::string name_of(const ShellPiece& piece) {
  if (piece.kind == Kind::comment) return "a comment";
  if (piece.raw == "\n") return "a second line";
  return fmt::format("\"{}\"", piece.raw);
}

/// The command is a text for another shell.
bool runs_text(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 5> shells{"sh", "bash", "dash", "ksh", "zsh"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "eval") return true;
    const std::string name = words[i].substr(words[i].find_last_of('/') + 1);
    if (std::find(shells.begin(), shells.end(), name) == shells.end()) continue;
    for (std::size_t flag = i + 1; flag < words.size() && words[flag].starts_with('-'); ++flag)
      if (!words[flag].starts_with("--") && words[flag].ends_with('c')) return true;
  }
  return false;
}

}  // namespace

std::size_t script_word(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].ends_with(".py")) return i;
    const bool starts_module = i > 1 && (words[i - 1] == "-m" || words[i - 1] == "--module");
    constexpr std::array<std::string_view, 4> launchers{
        "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
        "deepspeed.launcher.runner"};
    if (starts_module && std::ranges::find(launchers, words[i]) == launchers.end()) return i;
  }
  return 0;
}

bool names_json(const std::string& word) {
  return !word.starts_with('-') && word.find(".json") != std::string::npos;
}

TrainingCommand::TrainingCommand(const std::string& command, const std::string& config_path)
    : pieces_(split_shell(command)) {
  // A second --autotuning in a script that the command starts is not seen.
  remove_everywhere("--autotuning");
  const std::vector<std::size_t> marks = replace_variable(pieces_, "CONFIG", config_path);
  has_variable_ = !marks.empty();
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= pieces_.size(); ++i) {
    if (i < pieces_.size() && !is_end(pieces_[i])) continue;
    const auto mark = std::lower_bound(marks.begin(), marks.end(), begin);
    const bool is_marked = mark != marks.end() && *mark < i;
    if ((is_marked && num_marked_ == 0) || !has_variable_) {
      begin_ = begin;
      end_ = i;
    }
    if (is_marked) ++num_marked_;
    if (!has_variable_ && i < pieces_.size() && compound_by_.empty())
      compound_by_ = name_of(pieces_[i]);
    begin = i + 1;
  }
}

std::string TrainingCommand::ambiguity(const std::vector<std::string>& flags) const {
  if (!std::ranges::all_of(pieces_, &ShellPiece::is_closed))
    return "a quotation, a substitution or a redirection in it has no end";
  const std::vector<std::string> command = words();
  if (!has_variable_) {
    if (!compound_by_.empty())
      return fmt::format("it is not one simple command, because of {}", compound_by_);
    if (command.empty()) return "it starts nothing";
    return hidden_place();
  }
  const bool is_command = num_marked_ == 1 && !command.empty() && command.front() != "export";
  if (is_command && !runs_text(command)) return "";
  for (const std::string& flag : flags)
    if (!TrainingCommand(*this).replace_value(flag, ""))
      return fmt::format("{} of autotuning.arg_mappings has no place in it", flag);
  return "";
}

/// Says why the place of the configuration is hidden in one simple command without `$CONFIG`.
std::string TrainingCommand::hidden_place() const {
  if (runs_text(words())) return "the command is inside a text for another shell";
  const std::string engine = value_of("--deepspeed");
  if (!value_of("--deepspeed_config").empty() || names_json(engine)) return "";
  for (const char* const flag : accelerate_config_flags)
    if (!value_of(flag).empty()) return "";
  if (engine.find_first_of("$`") != std::string::npos)
    return fmt::format("it does not say what --deepspeed {} names", engine);
  bool is_value = true;  // the program itself is none of its arguments
  for (std::size_t i = first_word(); i < end_; ++i) {
    const ShellPiece& piece = pieces_[i];
    if (piece.kind != Kind::word) continue;
    if (piece.is_expanded && !is_value)
      return fmt::format("{} may hold arguments that name a configuration", piece.raw);
    is_value = piece.value.starts_with('-') && piece.value.find('=') == std::string::npos;
  }
  return "";
}

std::string TrainingCommand::text() const {
  std::string command;
  for (const ShellPiece& piece : pieces_) command += piece.raw;
  return command;
}

std::vector<std::string> TrainingCommand::words() const {
  std::vector<std::string> found;
  for (std::size_t i = first_word(); i < end_; ++i)
    if (pieces_[i].kind == Kind::word) found.push_back(pieces_[i].value);
  return found;
}

std::string TrainingCommand::value_of(const std::string& flag) const {
  for (std::size_t i = begin_; i < end_; ++i) {
    if (pieces_[i].kind != Kind::word) continue;
    if (pieces_[i].value.starts_with(flag + "=")) return pieces_[i].value.substr(flag.size() + 1);
    if (const auto next = next_word(i); pieces_[i].value == flag && next)
      return pieces_[*next].value;
  }
  return "";
}

std::size_t TrainingCommand::place_of(std::size_t word) const {
  std::size_t place = first_word();
  for (std::size_t i = place; i < end_; ++i) {
    if (pieces_[i].kind != Kind::word) continue;
    place = i;
    if (word-- == 0) break;
  }
  return place;
}

bool TrainingCommand::replace_value(const std::string& flag, const std::string& value,
                                    std::size_t from_word) {
  const std::string assignment = flag + "=";
  bool is_replaced = false;
  for (std::size_t i = from_word == 0 ? begin_ : place_of(from_word); i < end_; ++i) {
    if (pieces_[i].kind != Kind::word) continue;
    if (pieces_[i].value.starts_with(assignment)) {
      pieces_[i] = quoted_word(assignment + value);
      is_replaced = true;
      continue;
    }
    const std::optional<std::size_t> next = next_word(i);
    if (pieces_[i].value != flag || !next) continue;
    pieces_[*next] = quoted_word(value);
    is_replaced = true;
    i = *next;
  }
  return is_replaced;
}

bool TrainingCommand::set_switch(const std::string& flag, bool value, std::size_t from_word) {
  const std::string word = value ? "True" : "False";
  bool is_set = false;
  for (std::size_t i = place_of(from_word); i < end_; ++i) {
    if (pieces_[i].kind != Kind::word) continue;
    const bool is_alone = pieces_[i].value == flag;
    if (!is_alone && !pieces_[i].value.starts_with(flag + "=")) continue;
    is_set = true;
    const std::optional<std::size_t> next = next_word(i);
    if (!is_alone)
      pieces_[i] = quoted_word(flag + "=" + word);
    else if (next && is_truth(pieces_[*next].value))
      pieces_[*next] = quoted_word(word);
    else
      insert(i + 1, {word}, true);
  }
  return is_set;
}

void TrainingCommand::apply(const WordEdits& edits) {
  std::vector<std::size_t> places;
  for (std::size_t i = first_word(); i < end_; ++i)
    if (pieces_[i].kind == Kind::word) places.push_back(i);
  // The loop goes from the back, so that the places in front stay what they are.
  for (std::size_t word = places.size() + 1; word-- > 0;) {
    std::vector<std::string> added;
    bool is_replaced = false;
    for (const WordEdit& edit : edits) {
      if (edit.word != word) continue;
      added.insert(added.end(), edit.words.begin(), edit.words.end());
      is_replaced = is_replaced || edit.is_replaced;
    }
    if (word == places.size()) {
      append(added);
      continue;
    }
    if (is_replaced && !added.empty()) {
      pieces_[places[word]] = quoted_word(added.back());
      added.pop_back();
    } else if (is_replaced) {
      remove_word(places[word]);
    }
    insert(places[word], added, false);
  }
}

void TrainingCommand::append(const std::vector<std::string>& added) {
  std::size_t end = end_;
  while (end > begin_ && pieces_[end - 1].kind != Kind::word) --end;
  insert(end, added, true);
}

std::size_t TrainingCommand::first_word() const {
  for (std::size_t i = begin_; i < end_; ++i)
    if (pieces_[i].kind == Kind::word && !sets_variable(pieces_[i])) return i;
  return end_;
}

std::optional<std::size_t> TrainingCommand::next_word(std::size_t index) const {
  for (std::size_t i = index + 1; i < end_; ++i)
    if (pieces_[i].kind == Kind::word) return i;
  return std::nullopt;
}

/// Removes "flag value" and "flag=value".
void TrainingCommand::remove_everywhere(const std::string& flag) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].kind != Kind::word) continue;
    const bool holds_value = pieces_[i].value.starts_with(flag + "=");
    if (!holds_value && pieces_[i].value != flag) continue;
    std::size_t first = i;
    std::size_t last = i;
    if (!holds_value && i + 2 < pieces_.size() && pieces_[i + 1].kind == Kind::space &&
        pieces_[i + 2].kind == Kind::word)
      last = i + 2;
    if (first > 0 && pieces_[first - 1].kind == Kind::space) --first;
    pieces_.erase(at(pieces_, first), at(pieces_, last + 1));
    i = first;
  }
}

/// The blanks in front of it go, too.
void TrainingCommand::remove_word(std::size_t index) {
  const bool has_space = index > begin_ && pieces_[index - 1].kind == Kind::space;
  const std::size_t first = index - (has_space ? 1 : 0);
  pieces_.erase(at(pieces_, first), at(pieces_, index + 1));
  end_ -= index + 1 - first;
}

void TrainingCommand::insert(std::size_t index, const std::vector<std::string>& added,
                             bool space_in_front) {
  Pieces fresh;
  for (const std::string& word : added) {
    if (space_in_front) fresh.push_back({Kind::space, " ", ""});
    fresh.push_back(quoted_word(word));
    if (!space_in_front) fresh.push_back({Kind::space, " ", ""});
  }
  end_ += fresh.size();
  pieces_.insert(at(pieces_, index), fresh.begin(), fresh.end());
}

}  // namespace dstune
