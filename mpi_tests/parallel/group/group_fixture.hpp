#pragma once
// A GroupTable over the whole job, with shared memory or with MPI alone, and waits that end.

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/group/group_table.hpp"
#include "thrown.hpp"

namespace dstune::test {

enum class Transport { shared_memory, mpi };

inline std::string way_name(const testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::shared_memory ? "SharedMemory" : "Mpi";
}

class Job {
 public:
  /// `ranks_per_node` other than 0 makes nodes of that size out of one.
  explicit Job(Transport way, const std::vector<std::vector<int>>& known = {},
               GroupTable::Options options = {}, int ranks_per_node = 0)
      : world_(Communicator::world().duplicate()),
        node_(ranks_per_node == 0 ? world_.split_shared() : pretend_node(world_, ranks_per_node)),
        topology_(find_topology(world_, node_)),
        table_(world_, node_, topology_, known, with(options, way)) {}

  [[nodiscard]] const Communicator& world() const { return world_; }
  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] int rank() const { return topology_.world_rank; }
  [[nodiscard]] int size() const { return topology_.world_size; }
  [[nodiscard]] GroupTable& table() { return table_; }
  [[nodiscard]] std::vector<int> everyone() const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  [[nodiscard]] Waiter waiter(double seconds = 40, std::function<bool()> aborted = nullptr) const {
    const auto duration =
        std::chrono::duration_cast<Waiter::Clock::duration>(std::chrono::duration<double>(seconds));
    return {Waiter::Clock::now() + duration, std::move(aborted), topology_.share_core};
  }
  std::unique_ptr<ProcessGroup> join(const std::vector<int>& ranks) {
    return table_.join(ranks, ++attempt_, waiter());
  }
  /// A number for a group that all ranks count, members or not.
  std::uint64_t next_attempt() { return ++attempt_; }

 private:
  static Communicator pretend_node(const Communicator& world, int ranks_per_node) {
    std::vector<int> ranks;
    const int node = world.rank() / ranks_per_node;
    for (int rank = 0; rank < world.size(); ++rank) {
      if (rank / ranks_per_node == node) ranks.push_back(rank);
    }
    return world.create_group(ranks, node);
  }
  static GroupTable::Options with(GroupTable::Options options, Transport way) {
    options.use_shared_memory = way == Transport::shared_memory;
    return options;
  }

  Communicator world_;
  Communicator node_;
  Topology topology_;
  GroupTable table_;
  std::uint64_t attempt_ = 0;
};

/// Elements of a type as their bytes, so that one test serves all types. f16: normal numbers that
/// need no rounding, zero, infinity and NaN.
struct Elements {
  Elements(DType element_type, std::int64_t count)
      : type(element_type), bytes(static_cast<std::size_t>(count * size_bytes(element_type))) {}

  void set(std::int64_t i, float value) {
    if (type == DType::f32) {
      std::memcpy(&bytes[static_cast<std::size_t>(4 * i)], &value, 4);
    } else if (type == DType::f16) {
      const auto wide = std::bit_cast<std::uint32_t>(value);
      const std::uint32_t magnitude = wide & 0x7fffffffU;
      std::uint32_t half = magnitude < 0x38800000U ? 0 : (magnitude - (112U << 23)) >> 13;
      if (magnitude >= 0x7f800000U) half = magnitude == 0x7f800000U ? 0x7c00 : 0x7e00;
      const auto bits = static_cast<std::uint16_t>(half | (wide >> 16 & 0x8000U));
      std::memcpy(&bytes[static_cast<std::size_t>(2 * i)], &bits, 2);
    } else {
      const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      std::memcpy(&bytes[static_cast<std::size_t>(2 * i)], &upper, 2);
    }
  }
  [[nodiscard]] float get(std::int64_t i) const {
    float value = 0;
    if (type == DType::f32) {
      std::memcpy(&value, &bytes[static_cast<std::size_t>(4 * i)], 4);
    } else if (type == DType::f16) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &bytes[static_cast<std::size_t>(2 * i)], 2);
      const int exponent = bits >> 10 & 0x1f;
      const int fraction = bits & 0x3ff;
      value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                            : std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
      if (exponent == 0x1f) value = fraction == 0 ? INFINITY : NAN;
      if ((bits & 0x8000) != 0) value = -value;
    } else {
      std::uint16_t upper = 0;
      std::memcpy(&upper, &bytes[static_cast<std::size_t>(2 * i)], 2);
      value = std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
    }
    return value;
  }
  [[nodiscard]] std::byte* at(std::int64_t i) { return bytes.data() + i * size_bytes(type); }

  DType type;
  std::vector<std::byte> bytes;
};

}  // namespace dstune::test
