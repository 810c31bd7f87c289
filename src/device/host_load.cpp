#include "dstune/device/host_load.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include <unistd.h>

namespace dstune {

std::optional<HostTimes> host_times() {
  std::ifstream file("/proc/stat");
  std::string name;
  // user, nice, system, idle, iowait, irq, softirq, steal: what guests use is in the first two.
  constexpr int num_kinds = 8, idle = 3, waiting = 4;
  if (!(file >> name) || name != "cpu") return std::nullopt;
  HostTimes times;
  const auto ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (int kind = 0; kind < num_kinds; ++kind) {
    double ticks = 0;
    if (!(file >> ticks)) return std::nullopt;
    times.all_s += ticks / ticks_per_s;
    if (kind != idle && kind != waiting) times.busy_s += ticks / ticks_per_s;
    if (kind + 1 == num_kinds) times.stolen_s = ticks / ticks_per_s;
  }
  return times;
}

std::optional<double> load_average() {
  std::ifstream file("/proc/loadavg");
  double last_minute = 0, last_five = 0;
  if (!(file >> last_minute >> last_five)) return std::nullopt;
  return last_five;
}

std::optional<double> load_beside(int own_threads) {
  std::ifstream file("/proc/loadavg");
  double last_minute = 0, others = 0;
  int running = 0;
  if (!(file >> last_minute >> others >> others >> running)) return std::nullopt;
  return std::max(0.0, std::min(last_minute, static_cast<double>(running - own_threads)));
}

}  // namespace dstune
