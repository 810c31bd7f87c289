#pragma once
/// The thread on which a plug-in runs. It has descriptors of its own: a library that closes what it
/// did not open takes nothing from MPI, the journal or the messages of its process. Local.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"

namespace dstune::train {

class PluginThread {
 public:
  /// The process's one. Another one takes its place once its descriptors were closed.
  static std::shared_ptr<PluginThread> current();

  /// Does the work there and waits for its end, or until the deadline: false then, and the thread
  /// is of no further use. Exceptions of the work are thrown here.
  bool run(const std::function<void()>& work,
           std::optional<Waiter::Clock::time_point> deadline = std::nullopt);
  /// Takes kernels and device into use there.
  void use(Device& device);

  // On the thread itself, inside run().
  /// Tells whether a descriptor that was open at its start is not any more. Remembered.
  bool has_closed_descriptors();
  /// Likewise, where so many are closed that all are, at the cost of one call of the system.
  [[nodiscard]] bool has_closed_sentinel() const;

 private:
  struct Task {
    std::function<void()> work;
    std::exception_ptr thrown;
    bool is_done = false;
  };
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Task> task_;
  std::vector<int> descriptors_;
  int sentinel_ = -1;
  bool is_damaged_ = false;
};

}  // namespace dstune::train
