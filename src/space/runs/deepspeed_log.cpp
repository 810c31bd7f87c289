#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "dstune/space/deepspeed_run.hpp"

namespace dstune {

namespace {

constexpr double s_per_ms = 1e-3;
constexpr double bytes_per_gb = 0x1p30;  // DeepSpeed's GB

class LogReader {
 public:
  LogReader(const std::string& path, json::Problems& problems) : path_(path), problems_(problems) {}

  void read(std::string_view line) {
    ++number_;
    if (is_in_config_) {
      log_.config_text += std::string(line) + "\n";
      is_in_config_ = !line.starts_with('}');
    } else if (const auto start = line.find("json = {"); start != line.npos) {
      log_.config_text = std::string(line.substr(start + 7)) + "\n";
      log_.config_line = number_;
      is_in_config_ = true;
    } else if (const auto size = line.find("  world_size ...."); size != line.npos) {
      read_group_size(line.substr(size));
    } else if (line.find("CurrSamplesPerSec=") != line.npos) {
      read_speed(line);
    } else if (const auto at = line.find("time (ms) |"); at != line.npos) {
      read_breakdown(line.substr(at));
    } else if (line.find("Max_MA ") != line.npos) {
      read_memory(line, "Max_MA ");
    }
  }

  DeepSpeedLog take() { return std::move(log_); }

 private:
  /// The finite number that is not negative behind a label; a problem where there is none.
  std::optional<double> number(std::string_view line, std::string_view label) {
    const std::size_t at = line.find(label);
    double value = 0;
    if (at != line.npos) {
      const std::string_view rest = line.substr(at + label.size());
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
      if (error == std::errc() && std::isfinite(value) && value >= 0) return value;
    }
    problems_.add({path_, "", number_,
                   fmt::format("a line of DeepSpeed without a number behind \"{}\": damaged, or "
                               "mixed with another line",
                               label)});
    return std::nullopt;
  }

  void read_group_size(std::string_view line) {
    line.remove_prefix(line.rfind("..") + 2);
    if (const auto size = number(line, " "); size && *size >= 1)
      log_.group_size = static_cast<std::int64_t>(*size);
  }

  void read_speed(std::string_view line) {
    const auto step = number(line, "global_step=");
    const auto speed = number(line, "CurrSamplesPerSec=");
    if (step && speed && *speed > 0)
      log_.speeds.push_back({static_cast<std::int64_t>(*step), *speed});
    read_memory(line, "MaxMemAllocated=");
  }

  void read_memory(std::string_view line, std::string_view label) {
    const auto memory_gb = number(line, label);
    if (!memory_gb) return;
    const auto bytes = static_cast<std::int64_t>(std::min(*memory_gb, 1e6) * bytes_per_gb);
    log_.peak_memory_bytes = std::max(log_.peak_memory_bytes.value_or(0), bytes);
  }

  void read_breakdown(std::string_view line) {
    // Each micro-step has a line of its own; the one of the whole step comes last.
    if (line.find("| fwd: ") == line.npos) return;
    const auto forward = number(line, "| fwd: ");
    const auto backward = number(line, "| bwd: ");
    const auto update = number(line, "| step: ");
    if (forward && backward && update && *forward + *backward + *update > 0)
      log_.breakdowns.push_back({*forward * s_per_ms, *backward * s_per_ms, *update * s_per_ms});
  }

  std::string path_;
  json::Problems& problems_;
  DeepSpeedLog log_;
  int number_ = 0;
  bool is_in_config_ = false;
};

}  // namespace

DeepSpeedLog parse_deepspeed_log(std::string_view text, const std::string& path,
                                 json::Problems& problems) {
  LogReader reader(path, problems);
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    reader.read(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return reader.take();
}

}  // namespace dstune
