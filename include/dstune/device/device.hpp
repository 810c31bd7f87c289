#pragma once
/// The device of an experiment: memory, kernels, queues and threads of one rank.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dstune/base/text.hpp"
#include "dstune/device/memory.hpp"
#include "dstune/device/queues.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune {

/// The kind of device that a rank trains on.
enum class BackendKind { cpu, cuda };
[[nodiscard]] const EnumTexts& texts_of(BackendKind);

/// How a device is after a failure.
enum class DeviceState {
  drained,  ///< it has done all that it was asked for
  lost,     ///< this process can not use it any more: a GPU whose context is lost
  silent    ///< it does not come to rest, or its driver does not answer
};

/// A device beside its host. If a device has memory of its own, only kernels(), copies of queues()
/// and collectives of a group made for it touch that memory. The host's code touches the host's,
/// after a finish() of what the device did to it. Local.
class Device {
 public:
  struct Parts {
    const kernels::Table* kernels;
    std::unique_ptr<MemorySource> memory, host_memory;
    std::unique_ptr<Queues> queues;
    std::int64_t limit_bytes, host_limit_bytes;
    int threads;  ///< of the host's kernels
    std::string description;
    bool is_asynchronous = false;
  };
  explicit Device(Parts parts);
  virtual ~Device() = default;

  /// Kernels of the device: they go to the used queue.
  [[nodiscard]] const kernels::Table& kernels() const { return *parts_.kernels; }
  /// Kernels of its host's processor, for what is offloaded: done when the call returns.
  [[nodiscard]] const kernels::Table& host_kernels() const { return kernels::cpu_table(); }
  [[nodiscard]] Queues& queues() { return *parts_.queues; }
  /// Tells whether its work may still be under way when the call returns.
  [[nodiscard]] bool is_asynchronous() const { return parts_.is_asynchronous; }
  /// The memory that the device has less since just before this process first used it: context,
  /// libraries, communicators, arenas. It contains the memory that other processes took since then.
  /// Nothing where it has no memory of its own, or nobody knows.
  [[nodiscard]] virtual std::optional<std::int64_t> taken_bytes() { return std::nullopt; }
  /// Makes it the calling thread's, for threads beside the one that made it. Their calls of CUDA
  /// would else go to the first GPU, and make a context there.
  virtual void begin_thread() {}
  /// Tells whether this process can not use it any more, for any call: a GPU whose context is lost,
  /// or that was given up. Asks the device, and does not wait for what that has under way.
  [[nodiscard]] virtual bool is_lost() { return false; }
  /// After a failure, when nothing that it was asked for waits for peers any more (collectives are
  /// aborted): waits until all of that is done, at most so long. A device that is lost or silent is
  /// given up, for good. From then on nothing that it was asked for is given back, neither by this
  /// nor by anything made of it. That might wait for ever, and the device may still write there.
  /// Its memory is left to the end of the process, which has to be one that destroys nothing
  /// (_exit).
  [[nodiscard]] virtual DeviceState drain(std::chrono::duration<double> /*limit*/) {
    return DeviceState::drained;
  }

  /// The memory of one step that is built. Several may be built at once, each in arenas of its own
  /// that share the budgets; one of them is in use.
  struct Arenas {
    Arena device, host;
    Arena input, host_input;  ///< as of input_arena()
  };
  /// Arenas without memory. The device outlives them.
  [[nodiscard]] std::unique_ptr<Arenas> make_arenas();
  /// From now on arena() and its like are these. Returns those that were.
  std::unique_ptr<Arenas> use(std::unique_ptr<Arenas> arenas) {
    return std::exchange(arenas_, std::move(arenas));
  }

  [[nodiscard]] MemoryBudget& budget() { return budget_; }
  [[nodiscard]] Arena& arena() { return arenas_->device; }
  [[nodiscard]] MemoryBudget& host_budget() { return host_budget_; }
  /// Both the host and the device can follow its addresses.
  [[nodiscard]] Arena& host_arena() { return arenas_->host; }
  /// The input and output of a step, tokens and sums: a little of both memories that no plan counts
  /// and no budget limits.
  [[nodiscard]] Arena& input_arena() { return arenas_->input; }
  [[nodiscard]] Arena& host_input_arena() { return arenas_->host_input; }
  /// The host's, for collectives that go through it.
  [[nodiscard]] Arena& staging_arena() { return staging_arena_; }
  /// The budget of what is offloaded to a disk; without a limit of its own.
  [[nodiscard]] MemoryBudget& disk_budget() { return disk_budget_; }

  [[nodiscard]] int threads() const { return parts_.threads; }
  /// "cpu (AMD EPYC, avx512_bf16, 2 threads)"
  [[nodiscard]] const std::string& description() const { return parts_.description; }

 private:
  Parts parts_;
  MemoryBudget budget_, host_budget_, input_budget_, disk_budget_;
  std::unique_ptr<Arenas> arenas_;  ///< in use
  Arena staging_arena_;
};

/// The CPU cores of one rank as a device. Its memory and the host's are the same here, but have a
/// budget and an arena each. So what would not fit a device with memory of its own does not fit
/// here.
class CpuDevice : public Device {
 public:
  /// The budgets of both memories get the limit.
  CpuDevice(std::int64_t memory_limit_bytes, int threads);
};

/// Memory of this host that a process may use: the smaller of RAM and the cgroup's limit (v1, v2).
std::int64_t host_memory_bytes();
/// Resident bytes of this process.
std::int64_t process_resident_bytes();
/// The processor's clock now, as the system tells it; 0 where it does not.
double processor_clock_mhz();
/// The processor's name as the system tells it.
std::string processor_name();

}  // namespace dstune
