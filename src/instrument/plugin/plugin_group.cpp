#include "plugin/plugin_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/operands.hpp"

namespace dstune::train {
namespace {

/// Staging for bytes that are no whole elements, and for a broadcast's parts.
constexpr std::int64_t staging_bytes = std::int64_t{1} << 20;
constexpr std::int64_t min_chunk_bytes = 4096;
/// Opaque to all_gather, which moves elements of four bytes.
constexpr DType gathered = DType::i32;
constexpr std::int64_t gathered_bytes = size_bytes(gathered);
constexpr std::size_t longest_message = 768;
/// Beyond any memory, and exact as a double and as a signed number of bytes.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 52;

DType type_of(dstune_element element) {
  return element == DSTUNE_BF16 ? DType::bf16 : DType::f32;
}

Failure closed_descriptors() {
  return {Status::failed, "the plug-in closed descriptors that it had not opened"};
}

std::int64_t padded(std::int64_t bytes) {
  return (bytes + gathered_bytes - 1) / gathered_bytes * gathered_bytes;
}

}  // namespace

bool PluginGroup::call(const std::string& name, const std::function<dstune_status()>& work) {
  message_.clear();
  failure_ = {};
  agreement_ = Agreement::agreed;
  dstune_status status = DSTUNE_FAILED;
  call_alone([&] {
    try {
      status = work();
    } catch (...) {
      failure_ = {Status::failed, "an exception left the plug-in: its functions must catch it"};
    }
  });
  if (collective_error_) std::rethrow_exception(collective_error_);
  if (agreement_ == Agreement::agreed) {
    if (!failure_ && status != DSTUNE_OK) failure_ = failure_of(status);
    agreement_ = agree({failure_ ? Intent::failed : Intent::returns});
  }
  if (failure_) throw RecordedStatus(failure_.status, name + ": " + failure_.reason);
  return agreement_ == Agreement::agreed;
}

void PluginGroup::call_alone(const std::function<void()>& work) {
  if (thread_ == nullptr) return work();
  thread_->run([&] {
    work();
    if (thread_->has_closed_descriptors() && !failure_) failure_ = closed_descriptors();
  });
}

Failure PluginGroup::failure_of(dstune_status status) const {
  const auto said = [&](const char* otherwise) { return message_.empty() ? otherwise : message_; };
  switch (status) {
    case DSTUNE_OUT_OF_MEMORY:
      return {Status::out_of_memory, said("the plug-in ran out of memory")};
    case DSTUNE_FAILED:
      return {Status::failed, said("the plug-in failed and did not say why")};
    case DSTUNE_ENDED:
      return {Status::failed, said("answered DSTUNE_ENDED, and the experiment was not over")};
    default:
      return {Status::failed, fmt::format("answered {}, which is no status", status)};
  }
}

std::string PluginGroup::words(const Plan& plan) {
  constexpr std::array<std::string_view, 7> of_intents{
      "fails",
      "returns",
      "calls barrier",
      "calls broadcast of {} bytes from {}",
      "calls all_reduce_mean of {} elements of type {}",
      "calls reduce_scatter_mean of {} elements a rank of type {}",
      "calls all_gather of {} bytes a rank"};
  const std::string_view text = of_intents.at(static_cast<std::size_t>(plan.intent));
  return fmt::format(fmt::runtime(text), plan.amount, plan.detail);
}

PluginGroup::Agreement PluginGroup::agree(const Plan& plan) {
  if (group_.size() == 1) return Agreement::agreed;
  using Numbers = std::array<double, 3>;
  const Numbers mine{static_cast<double>(plan.intent), static_cast<double>(plan.amount),
                     static_cast<double>(plan.detail)};
  const std::vector<double> all = group_.exchange(mine);
  const auto of_rank = [&](int rank) {
    Numbers numbers{};
    std::copy_n(all.begin() + rank * static_cast<int>(numbers.size()), numbers.size(),
                numbers.begin());
    return numbers;
  };
  int odd_rank = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (of_rank(rank)[0] == static_cast<double>(Intent::failed)) return Agreement::peer_failed;
    if (odd_rank == 0 && of_rank(rank) != of_rank(0)) odd_rank = rank;
  }
  if (odd_rank == 0) return Agreement::agreed;
  const auto plan_of = [&](int rank) {
    const Numbers numbers = of_rank(rank);
    return Plan{static_cast<Intent>(static_cast<int>(numbers[0])),
                static_cast<std::uint64_t>(numbers[1]), static_cast<std::int64_t>(numbers[2])};
  };
  failure_ = {Status::failed, fmt::format("the ranks disagree: group rank 0 {}, group rank {} {}",
                                          words(plan_of(0)), odd_rank, words(plan_of(odd_rank)))};
  return Agreement::disagreed;
}

template <class Work>
dstune_status PluginGroup::together(const Plan& plan, const std::string& violation, Work&& work) {
  if (collective_error_ || failure_ || agreement_ != Agreement::agreed) return DSTUNE_ENDED;
  // MPI's descriptors are open on other threads only.
  if (thread_ != nullptr && thread_->has_closed_sentinel()) {
    failure_ = closed_descriptors();
    return DSTUNE_FAILED;
  }
  if (!violation.empty()) {
    failure_ = {Status::failed, words(plan) + ": " + violation};
    return DSTUNE_FAILED;
  }
  try {
    agreement_ = agree(plan);
    if (agreement_ != Agreement::agreed) return DSTUNE_ENDED;
    work();
    return DSTUNE_OK;
  } catch (const CollectiveError&) {
    collective_error_ = std::current_exception();
  } catch (const std::exception& error) {
    // Peers are inside the collective: there is nobody to agree with.
    collective_error_ = std::make_exception_ptr(
        CollectiveError(CollectiveError::Cause::aborted, words(plan) + ": " + error.what()));
  }
  return DSTUNE_ENDED;
}

std::string PluginGroup::violation_of(const void* out, const void* in, std::uint64_t amount,
                                      std::uint64_t element_bytes) const {
  if (amount > max_bytes / element_bytes / static_cast<std::uint64_t>(group_.size())) {
    return "more than any memory holds";
  }
  if (amount > 0 && (out == nullptr || in == nullptr)) return "a buffer is null";
  return "";
}

std::int64_t PluginGroup::gather_chunk(const std::byte* in, std::int64_t bytes) {
  const std::int64_t stride = padded(bytes);
  std::memcpy(sent_.data(), in, static_cast<std::size_t>(bytes));
  std::memset(sent_.data() + bytes, 0, static_cast<std::size_t>(stride - bytes));
  group_.all_gather(received_.data(), sent_.data(), stride / gathered_bytes, gathered);
  return stride;
}

void PluginGroup::gather_bytes(std::byte* out, const std::byte* in, std::int64_t bytes_per_rank) {
  if (bytes_per_rank % gathered_bytes == 0) {
    group_.all_gather(out, in, bytes_per_rank / gathered_bytes, gathered);
    return;
  }
  for (std::int64_t first = 0; first < bytes_per_rank; first += chunk_bytes_) {
    const std::int64_t now = std::min(chunk_bytes_, bytes_per_rank - first);
    const std::int64_t stride = gather_chunk(in + first, now);
    for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
      std::memcpy(out + rank * bytes_per_rank + first, received_.data() + rank * stride,
                  static_cast<std::size_t>(now));
    }
  }
}

void PluginGroup::broadcast_bytes(std::byte* data, std::int64_t bytes, int root) {
  if (group_.size() == 1) return;
  for (std::int64_t first = 0; first < bytes; first += chunk_bytes_) {
    const std::int64_t now = std::min(chunk_bytes_, bytes - first);
    const std::int64_t stride = gather_chunk(data + first, now);
    std::memcpy(data + first, received_.data() + root * stride, static_cast<std::size_t>(now));
  }
}

/// The state behind the functions that a plug-in is given.
struct PluginCalls {
  using Intent = PluginGroup::Intent;
  using Agreement = PluginGroup::Agreement;

  static PluginGroup& of(const dstune_group* group) {
    return *static_cast<PluginGroup*>(group->context);
  }

  static std::string violation_of(const PluginGroup& self, const void* out, const void* in,
                                  std::uint64_t count, dstune_element element) {
    if (element != DSTUNE_F32 && element != DSTUNE_BF16)
      return fmt::format("{} is no type of elements", element);
    return self.violation_of(out, in, count, sizeof(float));
  }

  static dstune_status barrier(const dstune_group* group) {
    return of(group).together({Intent::barrier}, "", [] {});
  }

  static dstune_status broadcast(const dstune_group* group, void* data, std::uint64_t bytes,
                                 std::int32_t root) {
    PluginGroup& self = of(group);
    std::string violation = self.violation_of(data, data, bytes, 1);
    if (root < 0 || root >= self.group_.size()) {
      violation = fmt::format("the group has {} ranks", self.group_.size());
    }
    return self.together({Intent::broadcast, bytes, root}, violation, [&] {
      self.broadcast_bytes(static_cast<std::byte*>(data), static_cast<std::int64_t>(bytes), root);
    });
  }

  static dstune_status all_reduce_mean(const dstune_group* group, void* data, std::uint64_t count,
                                       dstune_element element) {
    PluginGroup& self = of(group);
    const std::string violation = violation_of(self, data, data, count, element);
    return self.together({Intent::all_reduce, count, element}, violation, [&] {
      self.group_.all_reduce_average(data, static_cast<std::int64_t>(count), type_of(element));
    });
  }

  static dstune_status reduce_scatter_mean(const dstune_group* group, void* out, const void* in,
                                           std::uint64_t count_per_rank, dstune_element element) {
    PluginGroup& self = of(group);
    const std::string violation = violation_of(self, out, in, count_per_rank, element);
    return self.together({Intent::reduce_scatter, count_per_rank, element}, violation, [&] {
      self.group_.reduce_scatter_average(out, in, static_cast<std::int64_t>(count_per_rank),
                                         type_of(element));
    });
  }

  static dstune_status all_gather(const dstune_group* group, void* out, const void* in,
                                  std::uint64_t bytes_per_rank) {
    PluginGroup& self = of(group);
    return self.together(
        {Intent::all_gather, bytes_per_rank}, self.violation_of(out, in, bytes_per_rank, 1), [&] {
          self.gather_bytes(static_cast<std::byte*>(out), static_cast<const std::byte*>(in),
                            static_cast<std::int64_t>(bytes_per_rank));
        });
  }

  static dstune_status poll(const dstune_group* group) {
    PluginGroup& self = of(group);
    if (self.collective_error_ || self.failure_ || self.agreement_ != Agreement::agreed)
      return DSTUNE_ENDED;
    if (self.thread_ != nullptr && self.thread_->has_closed_sentinel()) {
      self.failure_ = closed_descriptors();
      return DSTUNE_ENDED;
    }
    try {
      self.waiter_.check("a call of the plug-in");
      return DSTUNE_OK;
    } catch (...) {
      self.collective_error_ = std::current_exception();
      return DSTUNE_ENDED;
    }
  }

  static dstune_status fail(const dstune_group* group, dstune_status status, const char* message) {
    const std::size_t length = message == nullptr ? 0 : strnlen(message, longest_message);
    of(group).message_.assign(message == nullptr ? "" : message, length);
    return status;
  }
};

PluginGroup::PluginGroup(ProcessGroup& group, const Waiter& waiter,
                         std::shared_ptr<PluginThread> thread)
    : group_(group),
      waiter_(waiter),
      thread_(std::move(thread)),
      chunk_bytes_(std::max(padded(staging_bytes / group.size()), min_chunk_bytes)),
      sent_(static_cast<std::size_t>(chunk_bytes_)),
      received_(static_cast<std::size_t>(chunk_bytes_ * group.size())) {
  functions_.struct_bytes = sizeof functions_;
  functions_.group_rank = group.group_rank();
  functions_.group_size = group.size();
  functions_.mpi_communicator = group.mpi_communicator();
  functions_.context = this;
  functions_.barrier = PluginCalls::barrier;
  functions_.broadcast = PluginCalls::broadcast;
  functions_.all_reduce_mean = PluginCalls::all_reduce_mean;
  functions_.reduce_scatter_mean = PluginCalls::reduce_scatter_mean;
  functions_.all_gather = PluginCalls::all_gather;
  functions_.poll = PluginCalls::poll;
  functions_.fail = PluginCalls::fail;
}

}  // namespace dstune::train
