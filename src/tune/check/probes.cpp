#include "check/probes.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/device/host_load.hpp"
#include "dstune/train/executor.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

using ElementType = kernels::DType;

std::int64_t bytes_of(ElementType type) {
  return type == ElementType::f32 ? 4 : 2;
}

/// Each kind of work takes so long in a turn; the first run, which makes kernels, comes before it.
constexpr double probe_s = 0.8;
constexpr int num_turns = 2;
/// A run of a product is to take so long: long enough for a clock, short enough for many.
constexpr double product_s = 0.01;
constexpr std::int64_t first_width = 256, most_width = 16384, width_step = 128;
constexpr int max_rounds = 5;
constexpr int min_runs = 5;
/// Twice so much is read and written, from memory and not from caches, where there is room.
constexpr std::int64_t most_array_bytes = std::int64_t{256} << 20;
/// Arrays and collectives take this part of a rank's memory.
constexpr std::int64_t share_of_memory = 16;
constexpr std::int64_t page_bytes = 4096;
constexpr std::int64_t first_bytes = std::int64_t{1} << 20, most_bytes = std::int64_t{1} << 30;
constexpr std::int64_t size_step = 4;
/// Recorded products have so many rows and columns.
constexpr std::int64_t recorded_width = 256;
/// A replay and plain calls may take other algorithms.
constexpr float recorded_tolerance = 1e-3F;

/// Seconds of processor that this process has used.
double used_s() {
  std::timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Whatever disturbs a run makes it longer, and what disturbs most of them is to be seen.
double lower_quartile(std::vector<double> times_s) {
  const auto place = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 4);
  std::ranges::nth_element(times_s, place);
  return *place;
}

class DeviceProbe {
 public:
  DeviceProbe(Device& device, std::int64_t room_bytes, const Waiter& waiter, RankReport& report)
      : device_(device), room_bytes_(room_bytes), waiter_(waiter), report_(report) {}

  void run(const std::function<void()>& come_together) {
    std::int64_t f32_width = first_width, bf16_width = first_width;
    attempt("products in fp32", [&] { f32_width = wanted_width(ElementType::f32); });
    attempt("products in bf16", [&] { bf16_width = wanted_width(ElementType::bf16); });
    const auto before = host_times();
    const SteadyClock::time_point began = SteadyClock::now();
    // The better of two turns counts: what disturbs one of them is over soon.
    for (int turn = 0; turn < num_turns; ++turn) {
      share_ = 1;
      come_together();
      attempt("products in fp32",
              [&] { keep(report_.f32_flops, time_product(ElementType::f32, f32_width, true)); });
      come_together();
      attempt("products in bf16",
              [&] { keep(report_.bf16_flops, time_product(ElementType::bf16, bf16_width, true)); });
      come_together();
      attempt("reads and writes of memory", [&] { keep(report_.memory_bytes, memory_rate()); });
      // A GPU works while its host waits.
      if (!device_.is_asynchronous())
        report_.processor_share = std::max(report_.processor_share.value_or(0), share_);
    }
    const double took_s = seconds(SteadyClock::now() - began);
    if (const auto after = host_times(); before && after && took_s > 0) {
      report_.busy_processors = (after->busy_s - before->busy_s) / took_s;
      report_.stolen_processors = (after->stolen_s - before->stolen_s) / took_s;
    }
    device_.input_arena().free();
  }

 private:
  void attempt(const char* what, const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::string failure = std::string(what) + ": " + error.what();
      if (std::ranges::find(report_.failures, failure) == report_.failures.end())
        report_.failures.push_back(failure);
    }
  }

  static void keep(double& best, double value) { best = std::max(best, value); }

  /// Seconds of what queue 0 is asked for.
  double seconds_of(const std::function<void()>& ask) {
    Queues& queues = device_.queues();
    queues.stamp(0);
    ask();
    queues.stamp(1);
    queues.finish_used();
    return queues.seconds_between(0, 1);
  }

  double quartile_of(const std::function<void()>& ask) {
    seconds_of(ask);
    std::vector<double> times_s;
    const SteadyClock::time_point began = SteadyClock::now();
    while (times_s.size() < min_runs || seconds(SteadyClock::now() - began) < probe_s)
      times_s.push_back(seconds_of(ask));
    return lower_quartile(std::move(times_s));
  }

  std::byte* memory(std::int64_t bytes) {
    device_.queues().prepare({.queues = 1, .events = 0, .stamps = 2}, waiter_);
    device_.input_arena().prepare(bytes);
    return device_.input_arena().base();
  }

  /// The width of a square product that takes about as long as a run is to take.
  std::int64_t wanted_width(ElementType type) {
    std::int64_t width = first_width;
    // Small ones say little of large ones: a GPU's first product is mostly its launch.
    for (int round = 0; round < max_rounds; ++round) {
      const double rate = time_product(type, width, false);
      const std::int64_t steps =
          static_cast<std::int64_t>(std::cbrt(rate * product_s / 2)) / width_step;
      const std::int64_t wanted = std::clamp(steps * width_step, first_width, most_width);
      if (wanted <= width) break;
      width = wanted;
    }
    return width;
  }

  /// Operations a second: of the second run, or of many.
  double time_product(ElementType type, std::int64_t width, bool is_measured) {
    const std::int64_t elements = width * width;
    const kernels::MatmulShape shape{
        .m = width, .n = width, .k = width, .type = type, .out_type = type};
    const auto workspace_bytes =
        static_cast<std::int64_t>(device_.kernels().matmul_workspace_bytes(shape));
    const std::int64_t bytes = elements * bytes_of(type);
    std::byte* const a = memory(3 * bytes + workspace_bytes);
    std::byte* const b = a + bytes;
    std::byte* const c = b + bytes;
    device_.kernels().fill(type, a, 0.01F, 2 * elements);
    const auto ask = [&] { device_.kernels().matmul(shape, a, b, nullptr, c, c + bytes); };
    const auto flops = 2 * static_cast<double>(width) * static_cast<double>(elements);
    if (!is_measured) {
      seconds_of(ask);
      return flops / seconds_of(ask);
    }
    const double used_before_s = used_s();
    const SteadyClock::time_point began = SteadyClock::now();
    const double rate = flops / quartile_of(ask);
    const double took_s = seconds(SteadyClock::now() - began);
    share_ = std::min(share_, (used_s() - used_before_s) / (took_s * device_.threads()));
    return rate;
  }

  double memory_rate() {
    const std::int64_t room = room_bytes_ / share_of_memory / 2;
    const std::int64_t bytes = std::min(most_array_bytes, room) / page_bytes * page_bytes;
    const auto elements = bytes / static_cast<std::int64_t>(sizeof(float));
    std::byte* const x = memory(2 * bytes);
    std::byte* const y = x + bytes;
    device_.kernels().fill(ElementType::f32, x, 1, 2 * elements);
    const double took_s = quartile_of(
        [&] { device_.kernels().add(ElementType::f32, y, ElementType::f32, x, elements); });
    // Both are read, and one is written.
    return 3 * static_cast<double>(bytes) / took_s;
  }

  Device& device_;
  std::int64_t room_bytes_;
  const Waiter& waiter_;
  RankReport& report_;
  double share_ = 1;  ///< of the processors, in this turn
};

}  // namespace

void probe_device(Device& device, std::int64_t room_bytes, const Waiter& waiter,
                  const std::function<void()>& come_together, RankReport& report) {
  DeviceProbe(device, room_bytes, waiter, report).run(come_together);
}

GroupRates probe_group(Device& device, ProcessGroup& group, int num_nodes, std::string transport,
                       double budget_s, std::int64_t room_bytes, const Waiter& waiter) {
  GroupRates found{
      .num_ranks = group.size(), .num_nodes = num_nodes, .transport = std::move(transport)};
  const auto ranks = static_cast<std::int64_t>(group.size());
  Queues& queues = device.queues();
  // The same on all ranks: the least room counts.
  const std::vector<double> rooms =
      group.exchange(std::array{static_cast<double>(room_bytes / share_of_memory)});
  const double room = std::ranges::min(rooms);
  const SteadyClock::time_point began = SteadyClock::now();
  const auto spent_s = [&] {
    return std::ranges::max(group.exchange(std::array{seconds(SteadyClock::now() - began)}));
  };
  double last_s = 0;
  for (std::int64_t bytes = first_bytes; bytes <= most_bytes; bytes *= size_step) {
    // A size that takes too long would end the others' waits.
    if (2 * static_cast<double>(bytes) > room ||
        (last_s > 0 && spent_s() + static_cast<double>(size_step) * last_s > budget_s))
      break;
    const std::int64_t count_of_rank = bytes / ranks / static_cast<std::int64_t>(sizeof(float));
    const std::int64_t count = count_of_rank * ranks;
    queues.prepare({.queues = 1, .events = 0, .stamps = 2}, group.watched(waiter));
    double has_memory = 1;
    try {
      device.input_arena().prepare(2 * bytes);
    } catch (const OutOfMemory&) {
      has_memory = 0;
    }
    // All ranks go on, or none.
    if (std::ranges::min(group.exchange(std::array{has_memory})) == 0) break;
    std::byte* const data = device.input_arena().base();
    std::byte* const other = data + bytes;
    device.kernels().fill(ElementType::f32, data, 1, 2 * bytes / 4);
    queues.finish_used();
    const double each_s = budget_s / 30;
    const auto time = [&](const std::function<void()>& ask) {
      return median_together(group, each_s, [&] {
        queues.stamp(0);
        ask();
        queues.stamp(1);
        queues.finish_used();
        return queues.seconds_between(0, 1);
      });
    };
    const double size_began_s = spent_s();
    const double reduce_s = time([&] { group.all_reduce_average(data, count, DType::f32); });
    const double gather_s = time([&] { group.all_gather(data, other, count_of_rank, DType::f32); });
    const double scatter_s =
        time([&] { group.reduce_scatter_average(other, data, count_of_rank, DType::f32); });
    const auto moved = static_cast<double>(count * 4) * static_cast<double>(ranks - 1) /
                       static_cast<double>(ranks);
    found.rates.push_back({.bytes = bytes,
                           .all_reduce = 2 * moved / reduce_s,
                           .all_gather = moved / gather_s,
                           .reduce_scatter = moved / scatter_s});
    last_s = spent_s() - size_began_s;
  }
  device.input_arena().free();
  return found;
}

std::optional<std::string> probe_recording(Device& device, ProcessGroup& group,
                                           const Waiter& waiter) {
  Queues& queues = device.queues();
  Recorder* const recorder = queues.recorder();
  if (recorder == nullptr || !group.is_recordable()) return std::nullopt;
  constexpr std::int64_t elements = recorded_width * recorded_width;
  constexpr auto bytes = elements * static_cast<std::int64_t>(sizeof(float));
  const kernels::MatmulShape shape{.m = recorded_width, .n = recorded_width, .k = recorded_width};
  const auto workspace_bytes =
      static_cast<std::int64_t>(device.kernels().matmul_workspace_bytes(shape));
  queues.prepare({.queues = 1, .events = 0, .stamps = 2}, group.watched(waiter));
  device.input_arena().prepare(3 * bytes + workspace_bytes);
  device.host_input_arena().prepare(bytes);
  std::byte* const a = device.input_arena().base();
  std::byte* const b = a + bytes;
  std::byte* const c = b + bytes;
  const auto* const seen = reinterpret_cast<const float*>(device.host_input_arena().base());
  const auto ask = [&] {
    device.kernels().matmul(shape, a, b, nullptr, c, c + bytes);
    group.all_reduce_sum(c, elements, DType::f32);
  };
  const auto result = [&] {
    queues.copy(device.host_input_arena().base(), c, bytes);
    queues.finish_used();
    return std::vector<float>(seen, seen + elements);
  };
  device.kernels().fill(ElementType::f32, a, 0.01F, 2 * elements);
  ask();
  const std::vector<float> expected = result();
  std::string wrong;
  recorder->begin(0);
  std::unique_ptr<Recording> recording;
  try {
    ask();
    recording = recorder->end();
  } catch (const std::exception& error) {
    recorder->drop();
    wrong = error.what();
  }
  // All ranks replay, or none.
  const std::vector<double> fine = group.exchange(std::array{recording ? 1.0 : 0.0});
  if (std::ranges::min(fine) > 0) {
    device.kernels().fill(ElementType::f32, c, 0, elements);
    recorder->replay(*recording, 0);
    const std::vector<float> replayed = result();
    for (std::size_t i = 0; i < expected.size() && wrong.empty(); ++i)
      if (!(std::abs(replayed[i] - expected[i]) <= recorded_tolerance * std::abs(expected[i])))
        wrong = "the replay gives another result than the calls";
  } else if (wrong.empty()) {
    wrong = "another rank could not record it";
  }
  recording.reset();
  device.input_arena().free();
  device.host_input_arena().free();
  return wrong;
}

}  // namespace dstune
