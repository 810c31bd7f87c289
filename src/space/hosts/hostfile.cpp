#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/space/hosts.hpp"

namespace dstune {
namespace {

constexpr std::size_t longest_name = 253;  // of the domain name system
constexpr std::size_t longest_quote = 60;
constexpr std::size_t max_listed = 8;

constexpr std::string_view name_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";

bool has_only(std::string_view letters, std::string_view text) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_ipv6(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') >= 2 &&
         has_only("0123456789abcdefABCDEF:.", text);
}

std::string_view short_name(std::string_view host) {
  return host.substr(0, host.find('.'));
}

/// A file that is something else entirely has a problem a line: nobody reads more than these.
constexpr std::size_t max_problems = 50;

constexpr std::array<std::string_view, 3> slot_keys{"slots", "count", "cpu"};
constexpr std::array<std::string_view, 4> max_slot_keys{"max_slots", "max-slots", "slots_max",
                                                        "slots-max"};
// For who starts the ranks; they were started.
constexpr std::array<std::string_view, 4> user_keys{"user", "username", "user_name", "user-name"};

template <std::size_t count>
bool is_one_of(std::string_view word, const std::array<std::string_view, count>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The contents of a host's line.
struct Line {
  std::string name;
  std::optional<int> slots;
  std::optional<int> max_slots;
};

/// Some write a comma between the fields.
constexpr std::string_view separators = ", \t\r\f\v";
constexpr std::string_view key_ends = "=, \t\r\f\v";

/// Reads a line's words; the first thing that is wrong ends it.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  /// Nothing where `problem()` says why.
  std::optional<Line> read() {
    Line line;
    if (!read_host(line)) return std::nullopt;
    while (skip(separators), !rest_.empty()) {
      if (!read_field(line)) return std::nullopt;
    }
    if (line.slots && line.max_slots && *line.max_slots < *line.slots) {
      return fail(fmt::format("max_slots={} is less than slots={}: raise it or leave it out",
                              *line.max_slots, *line.slots));
    }
    return line;
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::nullopt_t fail(std::string problem) {
    problem_ = std::move(problem);
    return std::nullopt;
  }
  void skip(std::string_view letters) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(letters), rest_.size()));
  }
  std::string_view word(std::string_view ends) {
    const std::string_view found = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(found.size());
    return found;
  }

  bool read_host(Line& line) {
    std::string_view host = word(separators);
    const std::size_t at = host.rfind('@');
    if (at != std::string_view::npos) host.remove_prefix(at + 1);
    // One colon is Hydra's number of processes, more are an IPv6 address.
    const std::size_t colon = host.find(':');
    if (colon != std::string_view::npos && colon == host.rfind(':')) {
      if (!read_slots(host.substr(colon + 1), "the number after the colon", line.slots)) {
        return false;
      }
      host = host.substr(0, colon);
    }
    if (host.find('[', 1) != std::string_view::npos) {
      fail(quoted(host) +
           " is a range of hosts: write one host a line (scontrol show hostnames expands it)");
    } else if (!is_host_name(host)) {
      fail(quoted(host) + " is no host name: a line is NAME, NAME slots=N or NAME:N");
    } else {
      line.name = host;
    }
    return problem_.empty();
  }

  bool read_field(Line& line) {
    const std::string_view key = word(key_ends);
    skip(host_blanks);
    const bool has_value = !rest_.empty() && rest_.front() == '=';
    if (has_value) rest_.remove_prefix(1);
    skip(host_blanks);
    const std::string_view value = has_value ? word(separators) : std::string_view{};
    const auto shown_key = std::string(key);
    if (is_one_of(key, slot_keys)) return read_slots(value, shown_key, line.slots);
    if (is_one_of(key, max_slot_keys)) return read_slots(value, shown_key, line.max_slots);
    if (has_value && is_one_of(key, user_keys)) return true;
    fail(quoted(key) + " is not known here: after the host come slots=N and max_slots=N");
    return false;
  }

  bool read_slots(std::string_view value, const std::string& what, std::optional<int>& field) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = error == std::errc{} && end == value.data() + value.size();
    if (field) {
      fail(what + " gives the slots of the host a second time: keep one of them");
    } else if (is_number && number >= 1 && number <= max_slots) {
      field = number;
    } else if (error == std::errc::result_out_of_range || (is_number && number > max_slots)) {
      fail(fmt::format("{} is {}: a host has at most {} slots", what, quoted(value), max_slots));
    } else if (is_number) {
      fail(
          fmt::format("{} is {}: a host has at least one slot; leave out the line of one that is "
                      "not to be used",
                      what, number));
    } else {
      fail(fmt::format("{} is {}: give a whole number of slots", what, quoted(value)));
    }
    return problem_.empty();
  }

  std::string_view rest_;
  std::string problem_;
};

std::string_view without_comment(std::string_view line) {
  return trimmed(line.substr(0, std::min(line.find('#'), line.find("//"))), host_blanks);
}

/// Lines become hosts: bare lines of one host add up, as in Open MPI and PBS.
class Collector {
 public:
  explicit Collector(const std::string& path) { file_.path = path; }

  void add(std::string_view text, int line_number) {
    LineReader reader(text);
    const auto line = reader.read();
    if (!line) {
      problem(line_number, reader.problem());
      return;
    }
    const bool is_bare = !line->slots && !line->max_slots;
    const int slots = line->slots.value_or(line->max_slots.value_or(1));
    const auto [place, is_new] = index_.try_emplace(line->name, file_.hosts.size());
    total_ += slots;
    if (is_new) {
      file_.hosts.push_back({line->name, slots, line_number});
      is_bare_.push_back(is_bare);
      return;
    }
    HostEntry& entry = file_.hosts[place->second];
    if (is_bare && is_bare_[place->second]) {
      ++entry.num_slots;
      return;
    }
    problem(line_number,
            fmt::format("{} is named on line {} already: give it one line with slots=N, or a bare "
                        "line for each slot",
                        line->name, entry.line));
  }

  Hostfile finish() {
    if (total_ > max_slots) {
      problem(0, fmt::format("the file has {} slots, more than the {} that are possible: name "
                             "fewer",
                             total_, max_slots));
    }
    if (file_.hosts.empty() && problems_.empty()) {
      problem(0, "the file names no host: write a line NAME slots=N for each");
    }
    if (num_left_out_ > 0) {
      problems_.add({file_.path, "", 0, fmt::format("and {} lines more", num_left_out_)});
    }
    problems_.check();
    return std::move(file_);
  }

 private:
  void problem(int line, const std::string& message) {
    if (problems_.all().size() >= max_problems) {
      ++num_left_out_;
    } else {
      problems_.add({file_.path, "", line, message});
    }
  }

  Hostfile file_;
  std::vector<bool> is_bare_;  // of each host
  std::map<std::string, std::size_t> index_;
  std::int64_t total_ = 0;
  json::Problems problems_;
  int num_left_out_ = 0;
};

}  // namespace

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > longest_name) return false;
  const bool is_name = text.find_first_of("-_.") != 0 && has_only(name_letters, text);
  return is_name || is_ipv6(text);
}

bool is_address(std::string_view host) {
  const bool is_ipv4 =
      std::count(host.begin(), host.end(), '.') == 3 && has_only("0123456789.", host);
  return is_ipv4 || is_ipv6(host);
}

HostNames::HostNames(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    whole_[names[i]].push_back(i);
    if (!is_address(names[i])) short_[std::string(short_name(names[i]))].push_back(i);
  }
}

std::vector<std::size_t> HostNames::find(std::string_view host) const {
  if (const auto found = whole_.find(host); found != whole_.end()) return found->second;
  if (is_address(host)) return {};
  const auto found = short_.find(short_name(host));
  return found != short_.end() ? found->second : std::vector<std::size_t>{};
}

std::string quoted(std::string_view text) {
  std::string shown = "\"";
  for (const char letter : text.substr(0, longest_quote)) {
    shown += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return shown + (text.size() > longest_quote ? "…\"" : "\"");
}

std::string listed(const std::vector<std::string>& names) {
  if (names.size() <= max_listed) return fmt::format("{}", fmt::join(names, ", "));
  const auto first = std::span(names).first(max_listed);
  return fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - max_listed);
}

Hostfile parse_hostfile(std::string_view text, const std::string& path) {
  Collector collector(path);
  // Editors on Windows begin files with one.
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  int line_number = 0;
  for (const std::string_view whole : lines_of(text)) {
    ++line_number;
    if (const std::string_view line = without_comment(whole); !line.empty())
      collector.add(line, line_number);
  }
  return collector.finish();
}

Hostfile read_hostfile(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, max_input_bytes);
  } catch (const IoError& error) {
    throw InputError({{path, "", 0, error.what()}});
  }
  return parse_hostfile(text, path);
}

}  // namespace dstune
