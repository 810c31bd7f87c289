#pragma once
/// The values of a command line's options, as what they stand for. Local.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/program_options/variables_map.hpp>

#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

/// The options that were given, by name; nothing where one was not. Throw UsageError naming it.
class OptionValues {
 public:
  explicit OptionValues(const boost::program_options::variables_map& map) : map_(map) {}

  [[nodiscard]] bool has(const char* name) const { return map_.count(name) > 0; }
  [[nodiscard]] std::vector<std::string> all(const char* name) const;
  [[nodiscard]] std::optional<std::string> text(const char* name) const;

  /// `out` becomes what the word stands for.
  template <class T>
  void choose(const char* name, T& out,
              const std::vector<std::pair<std::string, std::type_identity_t<T>>>& choices) const {
    const std::optional<std::string> word = text(name);
    if (!word) return;
    std::vector<std::string_view> known;
    for (const auto& [choice, value] : choices) {
      if (choice == *word) {
        out = value;
        return;
      }
      known.push_back(choice);
    }
    refuse_word(name, *word, known);
  }

  template <class Integer>
  [[nodiscard]] std::optional<Integer> whole_number(
      const char* name, Integer low, Integer high = std::numeric_limits<Integer>::max()) const {
    const std::optional<std::int64_t> value = integer(name, low, high);
    return value ? std::optional(static_cast<Integer>(*value)) : std::nullopt;
  }
  [[nodiscard]] std::optional<Version> version(const char* name) const;
  [[nodiscard]] std::optional<double> duration_s(const char* name) const;
  [[nodiscard]] std::optional<std::int64_t> bytes(const char* name) const;
  /// Returns the name of a folder, if it was given.
  [[nodiscard]] std::optional<std::string> folder(const char* name) const;

  [[noreturn]] void refuse(const char* name, const std::string& why) const;

 private:
  [[nodiscard]] std::optional<std::int64_t> integer(const char* name, std::int64_t low,
                                                    std::int64_t high) const;
  [[noreturn]] void refuse_word(const char* name, const std::string& word,
                                const std::vector<std::string_view>& known) const;

  const boost::program_options::variables_map& map_;
};

}  // namespace dstune
