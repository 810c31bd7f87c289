#include "dstune/report/launch_line.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "commands/shell_words.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

using Kind = ShellPiece::Kind;
using Pieces = std::vector<ShellPiece>;

ShellPiece quoted_word(const std::string& text) {
  return {Kind::word, shell_quote(text), text};
}

/// The simple command that starts the training, inside a command that may hold several
/// ("cd x && deepspeed train.py | tee log").
class TrainingCommand {
 public:
  /// It is the one with the word `marker` where there is one, else the last.
  TrainingCommand(const std::string& command, const std::string& marker)
      : pieces_(split_shell(command)) {
    std::size_t begin = 0;
    bool is_marked = false;
    for (std::size_t i = 0; i <= pieces_.size() && !is_marked; ++i) {
      if (i < pieces_.size() && pieces_[i].kind != Kind::control) continue;
      if (has_word(begin, i)) {
        begin_ = begin;
        end_ = i;
        is_marked = std::any_of(at(begin), at(i), [&](const ShellPiece& piece) {
          return piece.value.find(marker) != std::string::npos;
        });
      }
      begin = i + 1;
    }
  }

  [[nodiscard]] std::string text() const {
    std::string command;
    for (const ShellPiece& piece : pieces_) command += piece.raw;
    return command;
  }

  /// The command's own words, variables set in front of it left out.
  [[nodiscard]] std::vector<std::string> words() const {
    std::vector<std::string> found;
    for (std::size_t i = first_word(); i < end_; ++i)
      if (pieces_[i].kind == Kind::word) found.push_back(pieces_[i].value);
    return found;
  }

  /// Puts the words in front of the command's first word, or behind it.
  void insert_at_front(const std::vector<std::string>& added, bool behind_first_word) {
    insert(first_word() + (behind_first_word ? 1 : 0), added, behind_first_word);
  }

  void append(const std::vector<std::string>& added) {
    std::size_t end = end_;
    while (end > begin_ && pieces_[end - 1].kind == Kind::space) --end;
    insert(end, added, true);
  }

  /// Gives `flag` its value: "flag value" and "flag=value" are changed. False where it is not
  /// there.
  bool replace_value(const std::string& flag, const std::string& value) {
    const std::string assignment = flag + "=";
    for (std::size_t i = begin_; i < end_; ++i) {
      if (pieces_[i].kind != Kind::word) continue;
      if (pieces_[i].value.starts_with(assignment)) {
        pieces_[i] = quoted_word(assignment + value);
        return true;
      }
      const std::optional<std::size_t> next = next_word(i);
      if (pieces_[i].value != flag || !next) continue;
      pieces_[*next] = quoted_word(value);
      return true;
    }
    return false;
  }

  /// The word behind a flag, where both are there.
  [[nodiscard]] std::string value_of(const std::string& flag) const {
    for (std::size_t i = begin_; i < end_; ++i)
      if (const auto next = next_word(i); pieces_[i].value == flag && next)
        return pieces_[*next].value;
    return "";
  }

  /// Removes "flag value" and "flag=value".
  void remove(const std::string& flag) {
    for (std::size_t i = begin_; i < end_; ++i) {
      if (pieces_[i].kind != Kind::word) continue;
      const bool holds_value = pieces_[i].value.starts_with(flag + "=");
      if (!holds_value && pieces_[i].value != flag) continue;
      std::size_t first = i;
      std::size_t last = i;
      if (const auto next = next_word(i); !holds_value && next) last = *next;
      if (first > begin_ && pieces_[first - 1].kind == Kind::space) --first;
      pieces_.erase(at(first), at(last + 1));
      end_ -= last + 1 - first;
      i = first - 1;
    }
  }

 private:
  [[nodiscard]] Pieces::iterator at(std::size_t index) {
    return pieces_.begin() + static_cast<std::ptrdiff_t>(index);
  }

  [[nodiscard]] bool has_word(std::size_t begin, std::size_t end) {
    return std::any_of(at(begin), at(end),
                       [](const ShellPiece& piece) { return piece.kind == Kind::word; });
  }

  [[nodiscard]] std::size_t first_word() const {
    for (std::size_t i = begin_; i < end_; ++i) {
      const ShellPiece& piece = pieces_[i];
      if (piece.kind != Kind::word) continue;
      const bool sets_variable =
          piece.raw.find('=') != std::string::npos && !piece.raw.starts_with('-');
      if (!sets_variable) return i;
    }
    return end_;
  }

  [[nodiscard]] std::optional<std::size_t> next_word(std::size_t index) const {
    for (std::size_t i = index + 1; i < end_; ++i)
      if (pieces_[i].kind == Kind::word) return i;
    return std::nullopt;
  }

  void insert(std::size_t index, const std::vector<std::string>& added, bool space_in_front) {
    Pieces fresh;
    for (const std::string& word : added) {
      if (space_in_front) fresh.push_back({Kind::space, " ", ""});
      fresh.push_back(quoted_word(word));
      if (!space_in_front) fresh.push_back({Kind::space, " ", ""});
    }
    end_ += fresh.size();
    pieces_.insert(at(index), fresh.begin(), fresh.end());
  }

  Pieces pieces_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// A key's value, depth-first: at each level the key itself, then the objects in document order.
const json::Value* find_depth_first(const json::Value& object, const std::string& key) {
  if (const auto found = object.find(key); found != object.end()) return &*found;
  for (const auto& member : object.items()) {
    if (!member.value().is_object() || member.key() == "autotuning") continue;
    if (const json::Value* found = find_depth_first(member.value(), key)) return found;
  }
  return nullptr;
}

/// A value as a script's argument, nothing where the script is left alone. Integral floats lose
/// their point: argparse's int would refuse 500000000.0.
std::optional<std::string> argument(const json::Value& value) {
  if (value.is_null() || value == false || value == "auto" || value == "") return std::nullopt;
  if (value.is_boolean()) return "True";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 0x1p53)
      return std::to_string(static_cast<std::int64_t>(number));
  }
  return value.dump();
}

std::vector<std::string> shape_words(const GroupShape& shape) {
  return {"--num_nodes", std::to_string(shape.num_nodes), "--num_gpus",
          std::to_string(shape.num_gpus)};
}

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

void add_launcher(TrainingCommand& command, const GroupShape& shape) {
  const std::vector<std::string> words = command.words();
  if (words.empty()) return;
  if (words.front().ends_with(".py")) {
    std::vector<std::string> launcher = shape_words(shape);
    launcher.insert(launcher.begin(), "deepspeed");
    command.insert_at_front(launcher, false);
    return;
  }
  if (base_name(words.front()) != "deepspeed") return;
  for (const std::string& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    for (const std::string_view said :
         {"--num_gpus", "--num_nodes", "--include", "--exclude", "-i", "-e"})
      if (flag == said) return;
  }
  command.insert_at_front(shape_words(shape), true);
}

/// DeepSpeed's launcher needs a hostfile for more than one node; without one it looks in /job.
void add_hostfile(TrainingCommand& command, const std::string& hostfile) {
  const std::vector<std::string> words = command.words();
  if (words.empty() || base_name(words.front()) != "deepspeed") return;
  for (const std::string& word : words)
    if (word == "-H" || word == "--hostfile" || word.starts_with("--hostfile=")) return;
  command.insert_at_front({"--hostfile", hostfile}, true);
}

}  // namespace

std::string shell_quote(const std::string& word) {
  constexpr std::string_view harmless =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(harmless) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'')
      quoted += "'\\''";
    else
      quoted += letter;
  }
  return quoted + "'";
}

std::string launch_line(const std::string& training_command, const std::string& config_path,
                        const json::Value& ds_config, const GroupShape& shape,
                        const ArgMappings& arg_mappings,
                        const std::optional<std::string>& hostfile) {
  bool has_config = false;
  const std::string replaced =
      replace_variable(std::string(trimmed(training_command)), "CONFIG", config_path, has_config);
  TrainingCommand command(replaced, has_config ? config_path : "--deepspeed");
  command.remove("--autotuning");
  if (!has_config && !command.replace_value("--deepspeed_config", config_path)) {
    const bool names_file = command.value_of("--deepspeed").find(".json") != std::string::npos;
    if (!names_file || !command.replace_value("--deepspeed", config_path))
      command.append({"--deepspeed_config", config_path});
  }
  for (const auto& [key, flag] : arg_mappings) {
    const json::Value* value = find_depth_first(ds_config, std::string(trimmed(key)));
    if (value == nullptr) continue;
    const std::optional<std::string> text = argument(*value);
    const std::string name(trimmed(flag));
    if (text && !command.replace_value(name, *text)) command.append({name, *text});
  }
  add_launcher(command, shape);
  if (hostfile) add_hostfile(command, *hostfile);
  return command.text();
}

std::string placeholder_launch_line(const std::string& config_path, const GroupShape& shape) {
  return fmt::format(
      "deepspeed --num_nodes {} --num_gpus {} your_training_script.py --deepspeed_config {}",
      shape.num_nodes, shape.num_gpus, shell_quote(config_path));
}

}  // namespace dstune
