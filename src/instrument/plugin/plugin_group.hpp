#pragma once
/// A group as a plug-in sees it (dstune/workload.h). Its ranks meet before each collective and at
/// the end of each call: what goes wrong on one rank is known to all before anybody waits for data
/// that never comes, and the group stays usable.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/train/agreement.hpp"
#include "dstune/train/workload.hpp"
#include "dstune/workload.h"
#include "plugin/plugin_thread.hpp"

namespace dstune::train {

class PluginGroup {
 public:
  /// Both outlive it.
  /// `thread`: what the plug-in is called on; null: the caller's own.
  PluginGroup(ProcessGroup& group, const Waiter& waiter, std::shared_ptr<PluginThread> thread);
  PluginGroup(const PluginGroup&) = delete;
  PluginGroup& operator=(const PluginGroup&) = delete;

  /// The functions that the plug-in is given.
  [[nodiscard]] const dstune_group* functions() const { return &functions_; }

  /// Calls into the plug-in and then meets the peers. False: this rank's call went well and a
  /// peer's did not, which throws there. Throws RecordedStatus for this rank's own failure ("step
  /// 3: …"), and CollectiveError where the experiment was ended. Collective over the group.
  bool call(const std::string& name, const std::function<dstune_status()>& work);
  /// Calls the plug-in without meeting anybody. Local.
  void call_alone(const std::function<void()>& work);

 private:
  enum class Intent { failed, returns, barrier, broadcast, all_reduce, reduce_scatter, all_gather };
  /// The plan of a rank for its next call: `amount` elements or bytes, `detail` their type or root.
  struct Plan {
    Intent intent;
    std::uint64_t amount = 0;
    std::int64_t detail = 0;
  };
  enum class Agreement { agreed, peer_failed, disagreed };

  friend struct PluginCalls;  ///< what the plug-in calls
  static std::string words(const Plan& plan);

  /// Collective over the group.
  Agreement agree(const Plan& plan);
  /// A collective of the plug-in: meets, then works. Objections are found before, by this rank
  /// alone.
  template <class Work>
  dstune_status together(const Plan& plan, const std::string& violation, Work&& work);
  [[nodiscard]] std::string violation_of(const void* out, const void* in, std::uint64_t amount,
                                         std::uint64_t element_bytes) const;
  [[nodiscard]] Failure failure_of(dstune_status status) const;

  void gather_bytes(std::byte* out, const std::byte* in, std::int64_t bytes_per_rank);
  void broadcast_bytes(std::byte* data, std::int64_t bytes, int root);
  /// The same at most chunk_bytes_ of every rank in received_, a stride of padded bytes apart.
  std::int64_t gather_chunk(const std::byte* in, std::int64_t bytes);

  ProcessGroup& group_;
  const Waiter& waiter_;
  std::shared_ptr<PluginThread> thread_;
  dstune_group functions_{};
  std::int64_t chunk_bytes_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;

  // The state of the call that is under way.
  std::string message_;                      ///< the plug-in's words for what it is about to answer
  Failure failure_;                          ///< found by us, on this rank or in a disagreement
  Agreement agreement_ = Agreement::agreed;  ///< at the last meeting: after any other there is none
  std::exception_ptr collective_error_;
};

}  // namespace dstune::train
