// How the stand-in for NCCL finds its peers and moves data: by MPI's messages.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "dstune/base/error.hpp"
#include "fake_nccl.hpp"

namespace dstune::test {
namespace {

using nccl::Comm;

// Messages of a communicator by what they are for.
enum Tag { hello, table, data, split_hello, split_table, tags_a_communicator };
constexpr int first_tag = 64;
constexpr int communicators_a_rank = 4000;

// Of this process, whatever the test: MPICH gives a new communicator the context of a freed one,
// and with it the messages that nobody received there.
std::atomic<int> num_communicators{0};

}  // namespace

int FakeNccl::new_tag() {
  const int number = num_communicators++;
  require(number < communicators_a_rank, "a program makes few communicators");
  const int rank = world_ == nullptr ? 0 : world_->rank();
  return first_tag + (rank * communicators_a_rank + number) * tags_a_communicator;
}

std::vector<Bytes> FakeNccl::gather(Comm comm, const std::string& what, const void* mine,
                                    std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(mine);
  const Bytes own(first, first + bytes);
  std::vector<Bytes> all(static_cast<std::size_t>(comm->size), Bytes(bytes));
  std::vector<Part> parts;
  for (int peer = 0; peer < comm->size; ++peer)
    parts.push_back({peer, own.data(), bytes, all[static_cast<std::size_t>(peer)].data(), bytes});
  trade(comm, what, parts);
  return all;
}

void FakeNccl::complete(std::vector<Request> requests, const std::string& what) {
  for (Request& request : requests)
    waiter_.until([&] { return request.test(); }, ("a peer in " + what).c_str());
}

// What a rank is at goes first: those who are at something else are told apart by it.
void FakeNccl::check_peers(Comm comm, const std::string& what) {
  constexpr std::size_t name_bytes = 64;
  const auto size = static_cast<std::size_t>(comm->size);
  // The last is the own one. A peer may come later than we wait for it: then they are leaked.
  auto names = std::make_unique<std::vector<Bytes>>(size + 1, Bytes(name_bytes));
  Bytes& own = names->back();
  std::memcpy(own.data(), what.data(), std::min(what.size(), name_bytes));
  std::vector<Request> requests;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const int rank = comm->world_ranks[peer];
    Bytes& name = (*names)[peer];
    if (static_cast<int>(peer) == comm->rank) {
      name = own;
      continue;
    }
    requests.push_back(world_->start_receive(name.data(), name_bytes, rank, comm->tag + data));
    requests.push_back(world_->start_send(own.data(), name_bytes, rank, comm->tag + data));
  }
  try {
    complete(std::move(requests), what);
  } catch (const CollectiveError&) {
    static_cast<void>(names.release());
    throw;
  }
  for (const Bytes& name : *names)
    require(name == own, "ranks are at different collectives of a communicator");
}

void FakeNccl::trade(Comm comm, const std::string& what, const std::vector<Part>& parts) {
  check_peers(comm, what);
  const void* own = nullptr;  // NCCL allows one to send to itself
  for (const Part& part : parts)
    if (part.peer == comm->rank && part.sent != nullptr) own = part.sent;
  std::vector<Request> requests;
  for (const Part& part : parts) {
    if (part.peer == comm->rank) {
      if (part.received_bytes > 0) std::memcpy(part.received, own, part.received_bytes);
      continue;
    }
    const int rank = comm->world_ranks[static_cast<std::size_t>(part.peer)];
    if (part.received_bytes > 0)
      requests.push_back(
          world_->start_receive(part.received, part.received_bytes, rank, comm->tag + data));
    if (part.sent_bytes > 0)
      requests.push_back(world_->start_send(part.sent, part.sent_bytes, rank, comm->tag + data));
  }
  complete(std::move(requests), what);
}

void FakeNccl::send_bytes(int world_rank, int tag, const std::vector<int>& numbers) {
  Sent sent;
  sent.bytes = std::make_unique<Bytes>(numbers.size() * sizeof(int));
  std::memcpy(sent.bytes->data(), numbers.data(), sent.bytes->size());
  sent.request = world_->start_send(sent.bytes->data(), sent.bytes->size(), world_rank, tag);
  sent_.push_back(std::move(sent));
}

std::optional<std::vector<int>> FakeNccl::try_receive(int tag, int* source) {
  for (Sent& sent : sent_) sent.request.test();
  const auto message = world_->try_receive(tag);
  if (!message) return std::nullopt;
  if (source != nullptr) *source = message->source;
  std::vector<int> numbers(message->data.size() / sizeof(int));
  std::memcpy(numbers.data(), message->data.data(), message->data.size());
  return numbers;
}

std::function<bool()> FakeNccl::rendezvous_for_init(Comm comm) {
  if (comm->rank > 0) {
    send_bytes(comm->world_ranks.front(), comm->tag + hello, {comm->rank});
    return [this, comm] {
      const auto ranks = try_receive(comm->tag + table);
      if (!ranks) return false;
      comm->world_ranks = *ranks;
      return true;
    };
  }
  comm->world_ranks.resize(static_cast<std::size_t>(comm->size), -1);
  return [this, comm, arrived = 1]() mutable {
    int source = 0;
    while (const auto rank = try_receive(comm->tag + hello, &source)) {
      comm->world_ranks[static_cast<std::size_t>(rank->front())] = source;
      ++arrived;
    }
    if (arrived < comm->size) return false;
    for (const int rank : comm->world_ranks)
      if (rank != world_->rank()) send_bytes(rank, comm->tag + table, comm->world_ranks);
    return true;
  };
}

std::function<bool()> FakeNccl::rendezvous_for_split(Comm parent, int color, int key, Comm made) {
  // The answer: the new communicator's tag, and its ranks.
  const auto accept = [made](const std::vector<int>& answer) {
    made->tag = answer[0];
    made->world_ranks.assign(answer.begin() + 1, answer.end());
    made->size = static_cast<int>(made->world_ranks.size());
  };
  if (parent->rank > 0) {
    send_bytes(parent->world_ranks.front(), parent->tag + split_hello, {color, key});
    return [this, parent, accept] {
      const auto answer = try_receive(parent->tag + split_table);
      if (answer) accept(*answer);
      return answer.has_value();
    };
  }
  std::map<int, std::map<int, int>> parts{{color, {{key, world_->rank()}}}};
  return [this, parent, accept, parts, arrived = 1]() mutable {
    int source = 0;
    while (const auto place = try_receive(parent->tag + split_hello, &source)) {
      parts[place->at(0)][place->at(1)] = source;
      ++arrived;
    }
    if (arrived < parent->size) return false;
    for (const auto& [part, ranks] : parts) {
      std::vector<int> answer{new_tag()};
      for (const auto& [place, rank] : ranks) answer.push_back(rank);
      for (const auto& [place, rank] : ranks) {
        if (rank == world_->rank()) {
          accept(answer);
        } else {
          send_bytes(rank, parent->tag + split_table, answer);
        }
      }
    }
    return true;
  };
}

}  // namespace dstune::test
