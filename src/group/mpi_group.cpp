#include "mpi_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "average.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr int exchange_tag = 1;
constexpr int gather_tag = 2;
constexpr int pass_tag = 3;
constexpr std::size_t max_numbers = 32;
// MPI sends a short message at once. For a long one it first asks the receiver, whose answer waits
// behind all that the receiver itself sends: two ranks that send to each other take turns then.
constexpr std::size_t max_piece_bytes = std::size_t{32} << 10;
constexpr std::int64_t max_blocks_under_way = 64;
constexpr std::int64_t min_blocks_under_way = 4;
// More on its way from a node fills the queues of a slow link, which then drops some of it: TCP
// takes 0.2 s and more to send that again.
constexpr std::int64_t max_bytes_on_link = 1 << 20;
// A shorter slice takes longer to pass on than to send twice.
constexpr std::int64_t min_passed_bytes = 8 << 10;
constexpr std::size_t piece_alignment = 64;

}  // namespace

MpiContext::MpiContext(Communicator made, std::size_t staging_bytes, std::uint64_t number)
    : communicator(std::move(made)), id(number) {
  // At least an exchange and a line a rank fit.
  const std::size_t least =
      static_cast<std::size_t>(communicator.size()) * max_numbers * sizeof(double);
  sent = std::make_unique<Bytes>(std::max(staging_bytes / 2, least));
  received = std::make_unique<Bytes>(sent->size());
}

void MpiContext::abandon() noexcept {
  if (abandoned) return;
  abandoned = true;
  communicator.abandon();
  static_cast<void>(sent.release());
  static_cast<void>(received.release());
}

MpiGroup::MpiGroup(std::shared_ptr<MpiContext> context, std::vector<int> world_ranks,
                   std::vector<int> node_of_rank, int group_rank, Waiter waiter)
    : ProcessGroup(group_rank, std::move(world_ranks)),
      context_(std::move(context)),
      node_of_rank_(std::move(node_of_rank)),
      waiter_(std::move(waiter)),
      parts_(static_cast<std::size_t>(size())),
      requests_(static_cast<std::size_t>(max_blocks_under_way)) {
  require(node_of_rank_.size() == parts_.size(), "every rank is on a node");
}

void MpiGroup::begin(Call& call) {
  require(call.ranks.contains(group_rank()), "a rank takes part in its own calls");
  require(!context_->abandoned, "a group is used after it failed");
  const auto num_ranks = static_cast<std::size_t>(call.ranks.count);
  const auto element = static_cast<std::size_t>(size_bytes(call.type));
  const std::size_t per_rank = context_->sent->size() / num_ranks;
  std::size_t piece = std::min(max_piece_bytes, per_rank / min_blocks_under_way);
  piece = piece < piece_alignment ? element : piece / piece_alignment * piece_alignment;
  call.piece_bytes = piece;
  call.piece_count = static_cast<std::int64_t>(piece / element);
  call.slice_count = (call.count + call.ranks.count - 1) / call.ranks.count;
  call.num_blocks = (call.slice_count + call.piece_count - 1) / call.piece_count;
  call.own_index = call.ranks.index_of(group_rank());
  if (call.ranks != routed_) {
    routed_ = call.ranks;
    direct_ = direct_routes(call.ranks.count, call.own_index);
    by_node_ = routes_by_node(node_of_rank_, call.ranks, call.own_index);
  }
  // Each rank beside this one sends a piece of each block to each rank of other nodes.
  const auto near = static_cast<std::int64_t>(by_node_.mates.size()) + 1;
  const std::int64_t on_link = near * (call.ranks.count - near) * static_cast<std::int64_t>(piece);
  call.window = std::min(static_cast<std::int64_t>(per_rank / piece), max_blocks_under_way);
  if (on_link > 0) {
    call.window = std::clamp(max_bytes_on_link / on_link,
                             std::min(min_blocks_under_way, call.window), call.window);
  }
  const bool is_short = call.slice_count * size_bytes(call.type) < min_passed_bytes;
  call.routes = is_short ? &direct_ : &by_node_;
}

bool MpiGroup::has_arrived(const Call& call, std::int64_t block) {
  std::vector<Request>& requests = requests_[static_cast<std::size_t>(block % call.window)];
  while (!requests.empty() && requests.back().test()) requests.pop_back();
  return requests.empty();
}

void MpiGroup::run(Call call, std::span<const Step> steps, const char* what) {
  constexpr std::size_t max_steps = 4;
  std::array<std::int64_t, max_steps> passed{};  // blocks that each step has behind it
  std::int64_t& finished = passed[steps.size() - 1];
  const auto may_take = [&](std::size_t step) {
    const std::int64_t block = passed[step];
    if (step == 0) return block < call.num_blocks && block - finished < call.window;
    return block < passed[step - 1] && has_arrived(call, block);
  };
  // The last steps first: they make room.
  const auto take_one = [&] {
    for (std::size_t step = steps.size(); step-- > 0;) {
      if (!may_take(step)) continue;
      (this->*steps[step])(call, passed[step]);
      ++passed[step];
      return true;
    }
    return false;
  };
  try {
    begin(call);
    while (finished < call.num_blocks) waiter_.until(take_one, what);
  } catch (...) {
    context_->abandon();
    throw;
  }
}

std::size_t MpiGroup::bytes_of(const Call& call, std::int64_t block, int index) const {
  const std::int64_t in_slice = std::min(call.slice_count, call.count - index * call.slice_count);
  return as_bytes(
      std::clamp<std::int64_t>(in_slice - block * call.piece_count, 0, call.piece_count),
      call.type);
}

std::size_t MpiGroup::place_of(const Call& call, std::int64_t block, int index) const {
  return as_bytes(index * call.slice_count + block * call.piece_count, call.type);
}

std::byte* MpiGroup::sent(const Call& call, std::int64_t block, int index) const {
  const std::int64_t place = block % call.window * call.ranks.count + index;
  return context_->sent->data() + static_cast<std::size_t>(place) * call.piece_bytes;
}

std::byte* MpiGroup::received(const Call& call, std::int64_t block, int index) const {
  const std::int64_t place = block % call.window * call.ranks.count + index;
  return context_->received->data() + static_cast<std::size_t>(place) * call.piece_bytes;
}

std::byte* MpiGroup::arrived(const Call& call, std::int64_t block, int index) const {
  return index == call.own_index ? sent(call, block, index) : received(call, block, index);
}

void MpiGroup::send(const Call& call, std::int64_t block, const std::byte* from, std::size_t bytes,
                    int to, int tag) {
  if (bytes == 0) return;
  requests_[static_cast<std::size_t>(block % call.window)].push_back(
      context_->communicator.start_send(from, bytes, call.ranks.rank(to), tag));
}

void MpiGroup::receive(const Call& call, std::int64_t block, int place, std::size_t bytes, int from,
                       int tag) {
  if (bytes == 0) return;
  requests_[static_cast<std::size_t>(block % call.window)].push_back(
      context_->communicator.start_receive(received(call, block, place), bytes,
                                           call.ranks.rank(from), tag));
}

void MpiGroup::exchange(const Call& call, std::int64_t block) {
  const std::size_t own_bytes = bytes_of(call, block, call.own_index);
  for (int index = 0; index < call.ranks.count; ++index) {
    std::memcpy(sent(call, block, index), call.in + place_of(call, block, index),
                bytes_of(call, block, index));
    if (index != call.own_index) receive(call, block, index, own_bytes, index, exchange_tag);
  }
  // Not everybody to the same rank at once.
  for (int step = 1; step < call.ranks.count; ++step) {
    const int to = (call.own_index + step) % call.ranks.count;
    send(call, block, sent(call, block, to), bytes_of(call, block, to), to, exchange_tag);
  }
}

void MpiGroup::sum(const Call& call, std::int64_t block) {
  const std::size_t bytes = bytes_of(call, block, call.own_index);
  if (bytes == 0) return;
  const auto parts = std::span(parts_).first(static_cast<std::size_t>(call.ranks.count));
  for (int index = 0; index < call.ranks.count; ++index)
    parts[static_cast<std::size_t>(index)] = arrived(call, block, index);
  sum_and_divide(sent(call, block, call.own_index), parts, call.divisor,
                 static_cast<std::int64_t>(bytes) / size_bytes(call.type), call.type,
                 Write::cached);
}

void MpiGroup::sum_and_store(const Call& call, std::int64_t block) {
  sum(call, block);
  std::memcpy(call.out + as_bytes(block * call.piece_count, call.type),
              sent(call, block, call.own_index), bytes_of(call, block, call.own_index));
}

void MpiGroup::sum_and_gather(const Call& call, std::int64_t block) {
  sum(call, block);
  gather(call, block);
}

void MpiGroup::sum_and_collect(const Call& call, std::int64_t block) {
  sum(call, block);
  const std::size_t own_bytes = bytes_of(call, block, call.own_index);
  if (call.own_index != call.root) {
    return send(call, block, sent(call, block, call.own_index), own_bytes, call.root, gather_tag);
  }
  for (int index = 0; index < call.ranks.count; ++index) {
    if (index != call.own_index)
      receive(call, block, index, bytes_of(call, block, index), index, gather_tag);
  }
}

void MpiGroup::load_and_gather(const Call& call, std::int64_t block) {
  std::memcpy(sent(call, block, call.own_index),
              call.in + as_bytes(block * call.piece_count, call.type),
              bytes_of(call, block, call.own_index));
  gather(call, block);
}

void MpiGroup::gather(const Call& call, std::int64_t block) {
  for (int index = 0; index < call.ranks.count; ++index) {
    if (index != call.own_index && call.routes->from[static_cast<std::size_t>(index)] == index)
      receive(call, block, index, bytes_of(call, block, index), index, gather_tag);
  }
  const std::byte* const own = sent(call, block, call.own_index);
  for (const int to : call.routes->to)
    send(call, block, own, bytes_of(call, block, call.own_index), to, gather_tag);
}

void MpiGroup::pass_on(const Call& call, std::int64_t block) {
  for (int index = 0; index < call.ranks.count; ++index) {
    const int from = call.routes->from[static_cast<std::size_t>(index)];
    if (from != index) receive(call, block, index, bytes_of(call, block, index), from, pass_tag);
  }
  for (const int index : call.routes->passed) {
    for (const int to : call.routes->mates)
      send(call, block, received(call, block, index), bytes_of(call, block, index), to, pass_tag);
  }
}

void MpiGroup::store(const Call& call, std::int64_t block) {
  for (int index = 0; index < call.ranks.count; ++index) {
    std::memcpy(call.out + place_of(call, block, index), arrived(call, block, index),
                bytes_of(call, block, index));
  }
}

void MpiGroup::store_at_root(const Call& call, std::int64_t block) {
  if (call.own_index == call.root) store(call, block);
}

void MpiGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  run({.out = static_cast<std::byte*>(data),
       .in = static_cast<const std::byte*>(data),
       .count = count,
       .type = type,
       .ranks = ranks,
       .divisor = op == Reduction::sum ? 1 : ranks.count},
      std::array{&MpiGroup::exchange, &MpiGroup::sum_and_gather, &MpiGroup::pass_on,
                 &MpiGroup::store},
      "waiting for data to reduce");
}

void MpiGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  run({.out = static_cast<std::byte*>(data),
       .in = static_cast<const std::byte*>(data),
       .count = count,
       .type = type,
       .ranks = {0, 1, size()},
       .divisor = size(),
       .root = root},
      std::array{&MpiGroup::exchange, &MpiGroup::sum_and_collect, &MpiGroup::store_at_root},
      "waiting for data to reduce");
}

void MpiGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                      DType type, const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  run({.out = static_cast<std::byte*>(out),
       .in = static_cast<const std::byte*>(in),
       .count = count_per_rank * ranks.count,
       .type = type,
       .ranks = ranks,
       .divisor = ranks.count},
      std::array{&MpiGroup::exchange, &MpiGroup::sum_and_store}, "waiting for data to reduce");
}

void MpiGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  run({.out = static_cast<std::byte*>(out),
       .in = static_cast<const std::byte*>(in),
       .count = count_per_rank * ranks.count,
       .type = type,
       .ranks = ranks},
      std::array{&MpiGroup::load_and_gather, &MpiGroup::pass_on, &MpiGroup::store},
      "waiting for data to gather");
}

void MpiGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  run({.out = static_cast<std::byte*>(out),
       .in = static_cast<const std::byte*>(in),
       .count = count_per_rank * ranks.count,
       .type = type,
       .ranks = ranks},
      std::array{&MpiGroup::exchange, &MpiGroup::store}, "waiting for data of all");
}

void MpiGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  require(mine.size() <= max_numbers, "too many numbers for an exchange");
  require(all.size() == mine.size() * static_cast<std::size_t>(size()), "room for all numbers");
  require(!context_->abandoned, "a group is used after it failed");
  if (mine.empty()) return;
  try {
    std::memcpy(context_->sent->data(), mine.data(), mine.size_bytes());
    Request request = context_->communicator.start_all_gather(
        context_->sent->data(), context_->received->data(), mine.size_bytes());
    waiter_.until([&] { return request.test(); }, "waiting for an exchange");
    std::memcpy(all.data(), context_->received->data(), all.size_bytes());
  } catch (...) {
    context_->abandon();
    throw;
  }
}

}  // namespace dstune
