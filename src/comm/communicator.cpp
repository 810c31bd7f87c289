#include "dstune/comm/communicator.hpp"

#include <limits>
#include <numeric>
#include <set>

#include "dstune/base/error.hpp"
#include "mpi_state.hpp"

namespace dstune {

Communicator::State::State(MPI_Comm handle, bool own) : comm(handle), owned(own) {
  // Rather than by inheritance alone, so that it also holds where a library's rules differ.
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
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
  if (owned && mpi_is_running()) MPI_Comm_free(&comm);
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::world() {
  return Communicator(std::make_unique<State>(MPI_COMM_WORLD, false));
}

int Communicator::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(state_->comm, &rank), "MPI_Comm_rank");
  return rank;
}

int Communicator::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(state_->comm, &size), "MPI_Comm_size");
  return size;
}

int Communicator::fortran_handle() const {
  return static_cast<int>(MPI_Comm_c2f(state_->comm));
}

Communicator Communicator::duplicate() const {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(state_->comm, &copy), "MPI_Comm_dup");
  return Communicator(std::make_unique<State>(copy, true));
}

Communicator Communicator::split_shared() const {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(state_->comm, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  return Communicator(std::make_unique<State>(node, true));
}

Communicator Communicator::create_group(std::span<const int> ranks, int tag) const {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(state_->comm, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
            "MPI_Group_incl");
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(state_->comm, members, tag, &made), "MPI_Comm_create_group");
  check_mpi(MPI_Group_free(&members), "MPI_Group_free");
  check_mpi(MPI_Group_free(&all), "MPI_Group_free");
  return Communicator(std::make_unique<State>(made, true));
}

void Communicator::abandon() noexcept {
  state_->owned = false;
  note_abandoned();
}

void Communicator::broadcast(Bytes& data, int root) const {
  std::uint64_t bytes = data.size();
  check_mpi(MPI_Bcast(&bytes, 1, MPI_UINT64_T, root, state_->comm), "MPI_Bcast");
  data.resize(bytes);
  const ByteBlock block(bytes);
  check_mpi(MPI_Bcast(data.data(), block.count(), block.type(), root, state_->comm), "MPI_Bcast");
}

std::vector<Bytes> Communicator::all_gather(std::span<const std::byte> mine) const {
  const auto ranks = static_cast<std::size_t>(size());
  const std::uint64_t own_bytes = mine.size();
  std::vector<std::uint64_t> bytes(ranks);
  check_mpi(MPI_Allgather(&own_bytes, 1, MPI_UINT64_T, bytes.data(), 1, MPI_UINT64_T, state_->comm),
            "MPI_Allgather");
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
  check_mpi(MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(),
                           counts.data(), places.data(), MPI_BYTE, state_->comm),
            "MPI_Allgatherv");
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + places[r];
    parts[r].assign(begin, begin + counts[r]);
  }
  return parts;
}

void Communicator::barrier() const {
  check_mpi(MPI_Barrier(state_->comm), "MPI_Barrier");
}

// The communicator's operations that are started here and polled by their caller.

Request Communicator::start_send(const void* data, std::size_t bytes, int to, int tag) const {
  auto state = std::make_unique<Request::State>(bytes);
  check_mpi(MPI_Isend(data, state->block.count(), state->block.type(), to, tag, state_->comm,
                      &state->request),
            "MPI_Isend");
  return Request(std::move(state));
}

Request Communicator::start_receive(void* data, std::size_t bytes, int from, int tag) const {
  auto state = std::make_unique<Request::State>(bytes);
  check_mpi(MPI_Irecv(data, state->block.count(), state->block.type(), from, tag, state_->comm,
                      &state->request),
            "MPI_Irecv");
  return Request(std::move(state));
}

Request Communicator::start_all_gather(const void* mine, void* all,
                                       std::size_t bytes_per_rank) const {
  auto state = std::make_unique<Request::State>(bytes_per_rank);
  const ByteBlock& block = state->block;
  check_mpi(MPI_Iallgather(mine, block.count(), block.type(), all, block.count(), block.type(),
                           state_->comm, &state->request),
            "MPI_Iallgather");
  return Request(std::move(state));
}

Request Communicator::start_all_to_all(const void* parts, void* received,
                                       std::size_t bytes_per_rank) const {
  auto state = std::make_unique<Request::State>(bytes_per_rank);
  const ByteBlock& block = state->block;
  check_mpi(MPI_Ialltoall(parts, block.count(), block.type(), received, block.count(), block.type(),
                          state_->comm, &state->request),
            "MPI_Ialltoall");
  return Request(std::move(state));
}

namespace {

// A matched probe keeps other threads from taking the message between probe and receive.
std::optional<Communicator::State::Arriving> match(MPI_Comm comm, int tag) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag, comm, &found, &message, &status), "MPI_Improbe");
  if (found == 0) return std::nullopt;
  MPI_Count bytes = 0;
  check_mpi(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
  auto data = std::make_unique<Bytes>(static_cast<std::size_t>(bytes));
  auto state = std::make_unique<Request::State>(data->size());
  check_mpi(MPI_Imrecv(data->data(), state->block.count(), state->block.type(), &message,
                       &state->request),
            "MPI_Imrecv");
  return Communicator::State::Arriving{status.MPI_SOURCE, tag, std::move(data),
                                       Request(std::move(state))};
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
    Message complete{message->source, tag, std::move(*message->data)};
    state_->arriving.erase(message);
    return complete;
  }
  return std::nullopt;
}

}  // namespace dstune
