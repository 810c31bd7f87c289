#pragma once
/// The options of programs that start others: which words they take, and where the command they
/// start begins. Local.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstune {

/// The way in which a program reads its options. Names that mean the same are joined by '|', the
/// first one names the option; names are separated by blanks.
struct OptionSyntax {
  std::string_view with_value;
  std::string_view flags;
  std::string_view with_two_values = "";
  enum class Unknown { refused, takes_value } unknown = Unknown::refused;
  bool abbreviates = false;         ///< a beginning that only one long option has names it
  bool dashes_are_lines = false;    ///< --num-gpus is --num_gpus
  bool joins_short_values = false;  ///< -n8
};

/// An option as it stands in the command.
struct GivenOption {
  std::string name;
  std::size_t word;        ///< of the option, …
  std::size_t value_word;  ///< … and of its value, which may be the same one
  std::string front;       ///< what that word has in front of the value
  std::string value;
};

struct GivenOptions {
  std::vector<GivenOption> all;
  std::size_t begin = 0;
  std::size_t end = 0;  ///< the first word that belongs to no option
  std::string unknown;  ///< the option at which reading ended

  [[nodiscard]] const GivenOption* find(std::string_view name) const;  ///< the last one, or null
};

GivenOptions read_options(const std::vector<std::string>& words, std::size_t begin,
                          const OptionSyntax& syntax);

/// A count as a person writes it, else nothing.
std::optional<int> count_of(const std::string& text);
std::optional<int> count_of(const GivenOption* option);

/// The shell says it when the command runs.
bool is_variable(const std::string& text);

/// Words that stand in the place of a word, or in front of it.
struct WordEdit {
  std::size_t word;
  bool is_replaced;
  std::vector<std::string> words;
};
using WordEdits = std::vector<WordEdit>;

/// Gives every option of that name another value.
void set_option(const GivenOptions& options, std::string_view name, const std::string& value,
                WordEdits& edits);
/// Likewise, or puts it in front of the others.
void set_or_add_option(const GivenOptions& options, std::string_view name, const std::string& value,
                       WordEdits& edits);
void remove_option(const GivenOptions& options, std::string_view name, WordEdits& edits);

}  // namespace dstune
