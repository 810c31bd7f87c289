#include "dstune/comm/communicator.hpp"

#include <array>
#include <limits>
#include <new>
#include <numeric>
#include <set>

#include "dstune/base/error.hpp"
#include "mpi_state.hpp"

namespace dstune {
namespace {

/// Memory of states that are gone: as many as a group of a node's ranks has at once.
struct {
  std::mutex mutex;
  std::array<void*, 64> memory{};
  std::size_t count = 0;
} spare_states;

}  // namespace

void* Request::State::operator new(std::size_t bytes) {
  const std::lock_guard lock(spare_states.mutex);
  return spare_states.count > 0 ? spare_states.memory[--spare_states.count] : ::operator new(bytes);
}

void Request::State::operator delete(void* memory) noexcept {
  const std::lock_guard lock(spare_states.mutex);
  if (spare_states.count < spare_states.memory.size()) {
    spare_states.memory[spare_states.count++] = memory;
  } else {
    ::operator delete(memory);
  }
}

Request::Request() noexcept = default;
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&&) noexcept = default;
// MPI forbids freeing an active collective's request, so an unfinished one is only forgotten.
Request::~Request() = default;
Request::Request(std::unique_ptr<State> state) : state_(std::move(state)) {}

bool Request::test() {
  if (!state_ || state_->done) return true;
  check_mpi(mpi().test(state_->operation, state_->done));
  return state_->done;
}

Communicator::State::State(MpiLibrary::Comm handle, bool own) : comm(handle), owned(own) {
  // Rather than by inheritance alone, so that it also holds where a library's rules differ.
  check_mpi(mpi().return_errors(comm));
}

Communicator::State::~State() {
  const auto has_arrived = [](Arriving& message) {
    try {
      return message.request.test();
    } catch (const MpiError&) {
      return false;
    }
  };
  for (Arriving& message : arriving) {
    // The library may still write into it.
    if (!has_arrived(message)) static_cast<void>(message.data.release());
  }
  if (owned && mpi_is_running()) mpi().free(comm);
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::world() {
  return Communicator(std::make_unique<State>(mpi().world(), false));
}

int Communicator::rank() const {
  int rank = 0;
  check_mpi(mpi().rank(state_->comm, rank));
  return rank;
}

int Communicator::size() const {
  int size = 0;
  check_mpi(mpi().size(state_->comm, size));
  return size;
}

int Communicator::fortran_handle() const {
  return mpi().fortran_handle(state_->comm);
}

Communicator Communicator::duplicate() const {
  MpiLibrary::Comm copy{};
  check_mpi(mpi().duplicate(state_->comm, copy));
  return Communicator(std::make_unique<State>(copy, true));
}

Communicator Communicator::split_shared() const {
  MpiLibrary::Comm node{};
  check_mpi(mpi().split_shared(state_->comm, rank(), node));
  return Communicator(std::make_unique<State>(node, true));
}

Communicator Communicator::create_group(std::span<const int> ranks, int tag) const {
  MpiLibrary::Comm made{};
  check_mpi(mpi().create_group(state_->comm, ranks, tag, made));
  return Communicator(std::make_unique<State>(made, true));
}

void Communicator::abandon() noexcept {
  state_->owned = false;
  anything_abandoned = true;
}

void Communicator::broadcast(Bytes& data, int root) const {
  std::uint64_t bytes = data.size();
  check_mpi(mpi().broadcast(state_->comm, &bytes, sizeof bytes, root));
  data.resize(bytes);
  check_mpi(mpi().broadcast(state_->comm, data.data(), bytes, root));
}

std::vector<Bytes> Communicator::all_gather(std::span<const std::byte> mine) const {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> bytes(ranks);
  check_mpi(mpi().all_gather(state_->comm, mine.size(), bytes.data()));
  std::vector<Bytes> parts(ranks);
  const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  if (total > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
    // Displacements are ints as well: one by one.
    for (std::size_t r = 0; r < ranks; ++r) {
      if (static_cast<int>(r) == rank()) parts[r].assign(mine.begin(), mine.end());
      broadcast(parts[r], static_cast<int>(r));
    }
    return parts;
  }
  std::vector<int> counts(bytes.begin(), bytes.end());
  std::vector<int> places(ranks, 0);
  std::partial_sum(counts.begin(), counts.end() - 1, places.begin() + 1);
  Bytes all(total);
  check_mpi(mpi().all_gather(state_->comm, mine, all.data(), counts.data(), places.data()));
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + places[r];
    parts[r].assign(begin, begin + counts[r]);
  }
  return parts;
}

void Communicator::barrier() const {
  check_mpi(mpi().barrier(state_->comm));
}

namespace {

/// `start(operation)` starts it.
template <class Start>
Request started(const Start& start) {
  auto state = std::make_unique<Request::State>();
  check_mpi(start(state->operation));
  return Request(std::move(state));
}

}  // namespace

Request Communicator::start_send(const void* data, std::size_t bytes, int to, int tag) const {
  return started([&](MpiLibrary::Operation& operation) {
    return mpi().start_send(state_->comm, data, bytes, to, tag, operation);
  });
}

Request Communicator::start_receive(void* data, std::size_t bytes, int from, int tag) const {
  return started([&](MpiLibrary::Operation& operation) {
    return mpi().start_receive(state_->comm, data, bytes, from, tag, operation);
  });
}

Request Communicator::start_all_gather(const void* mine, void* all,
                                       std::size_t bytes_per_rank) const {
  return started([&](MpiLibrary::Operation& operation) {
    return mpi().start_all_gather(state_->comm, mine, all, bytes_per_rank, operation);
  });
}

namespace {

// A matched probe keeps other threads from taking the message between probe and receive.
std::optional<Communicator::State::Arriving> match(MpiLibrary::Comm comm, int tag) {
  MpiLibrary::Match found;
  check_mpi(mpi().match(comm, tag, found));
  if (!found.is_found) return std::nullopt;
  auto data = std::make_unique<Bytes>(found.bytes);
  Request request = started([&](MpiLibrary::Operation& operation) {
    return mpi().start_receive(found, data->data(), operation);
  });
  return Communicator::State::Arriving{found.source, tag, std::move(data), std::move(request)};
}

}  // namespace

std::optional<Communicator::Message> Communicator::try_receive(int tag) const {
  const std::lock_guard lock(state_->arriving_mutex);
  if (auto matched = match(state_->comm, tag)) state_->arriving.push_back(std::move(*matched));
  // A large message may overtake nothing from its own source, but others pass it.
  std::set<int> unfinished_sources;
  for (auto message = state_->arriving.begin(); message != state_->arriving.end(); ++message) {
    if (message->tag != tag || unfinished_sources.contains(message->source)) continue;
    if (!message->request.test()) {
      unfinished_sources.insert(message->source);
      continue;
    }
    Message complete{message->source, std::move(*message->data)};
    state_->arriving.erase(message);
    return complete;
  }
  return std::nullopt;
}

}  // namespace dstune
