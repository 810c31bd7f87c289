#include "dstune/device/device.hpp"

#include <limits>
#include <utility>

namespace dstune {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

}  // namespace

Device::Device(Parts parts)
    : parts_(std::move(parts)),
      budget_(parts_.limit_bytes),
      host_budget_(parts_.host_limit_bytes),
      input_budget_(no_limit),
      disk_budget_(no_limit, "disk budget"),
      arena_(budget_, *parts_.memory),
      host_arena_(host_budget_, *parts_.host_memory),
      input_arena_(input_budget_, *parts_.memory),
      host_input_arena_(input_budget_, *parts_.host_memory),
      staging_arena_(input_budget_, *parts_.host_memory) {}

}  // namespace dstune
