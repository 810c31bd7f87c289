#include "unique_id.hpp"

#include <algorithm>
#include <vector>

#include "dstune/base/error.hpp"

namespace dstune::nccl {
namespace {

// Bytes in a number, so that every value of them is one exactly; all of them fit an exchange.
constexpr std::size_t bytes_a_number = 6;
constexpr std::size_t num_bytes = sizeof(UniqueId::bytes);
constexpr std::size_t num_numbers = (num_bytes + bytes_a_number - 1) / bytes_a_number;

void pack(const UniqueId& id, std::span<double> numbers) {
  for (std::size_t i = num_bytes; i-- > 0;) {
    double& number = numbers[i / bytes_a_number];
    number = 256 * number + static_cast<unsigned char>(id.bytes[i]);
  }
}

UniqueId unpack(std::span<const double> numbers) {
  UniqueId id;
  for (std::size_t i = 0; i < num_bytes; ++i) {
    const auto number = static_cast<std::uint64_t>(numbers[i / bytes_a_number]);
    id.bytes[i] = static_cast<char>(number >> 8 * (i % bytes_a_number) & 0xff);
  }
  return id;
}

}  // namespace

UniqueId agree_on_unique_id(ProcessGroup& host, Library& library) {
  std::vector<double> mine(1 + num_numbers);
  if (host.group_rank() == 0) {
    UniqueId id;
    mine[0] = static_cast<double>(library.get_unique_id(id));
    pack(id, std::span(mine).subspan(1));
  }
  const std::vector<double> all = host.exchange(mine);
  const auto result = static_cast<Result>(static_cast<int>(all[0]));
  if (result != Result::success) {
    throw CollectiveError(
        CollectiveError::Why::aborted,
        "making an NCCL communicator: the first rank gets no id: " + library.error_text(result));
  }
  return unpack(std::span(all).subspan(1, num_numbers));
}

}  // namespace dstune::nccl
