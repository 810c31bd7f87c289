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

constexpr std::size_t largest_count = std::numeric_limits<int>::max();
constexpr std::size_t large_bytes = std::size_t{1} << 30;

// One element of exactly `bytes`: gibibytes and the rest.
MPI_Datatype make_large_type(std::size_t bytes) {
  MPI_Datatype gibibyte = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_contiguous(static_cast<int>(large_bytes), MPI_BYTE, &gibibyte),
            "MPI_Type_contiguous");
  const int lengths[2] = {static_cast<int>(bytes / large_bytes),
                          static_cast<int>(bytes % large_bytes)};
  const MPI_Aint places[2] = {0, static_cast<MPI_Aint>(bytes / large_bytes * large_bytes)};
  const MPI_Datatype types[2] = {gibibyte, MPI_BYTE};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_create_struct(2, lengths, places, types, &type), "MPI_Type_create_struct");
  check_mpi(MPI_Type_commit(&type), "MPI_Type_commit");
  check_mpi(MPI_Type_free(&gibibyte), "MPI_Type_free");
  return type;
}

/// Memory of states that are gone: as many as a group of a node's ranks has at once.
struct {
  std::mutex mutex;
  std::array<void*, 64> memory{};
  std::size_t count = 0;
} spare_states;

}  // namespace

ByteBlock::ByteBlock(std::size_t bytes)
    : count_(bytes <= largest_count ? static_cast<int>(bytes) : 1),
      type_(bytes <= largest_count ? MPI_BYTE : make_large_type(bytes)) {}

ByteBlock::~ByteBlock() {
  if (type_ != MPI_BYTE && mpi_is_running()) MPI_Type_free(&type_);
}

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
  int flag = 0;
  check_mpi(MPI_Test(&state_->request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
  state_->done = flag != 0;
  return state_->done;
}

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
  anything_abandoned = true;
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

namespace {

/// `call(count, type, request)` starts an operation on `bytes` bytes.
template <class Call>
Request start(std::size_t bytes, const char* name, Call&& call) {
  auto state = std::make_unique<Request::State>(bytes);
  check_mpi(call(state->block.count(), state->block.type(), &state->request), name);
  return Request(std::move(state));
}

}  // namespace

Request Communicator::start_send(const void* data, std::size_t bytes, int to, int tag) const {
  return start(bytes, "MPI_Isend", [&](int count, MPI_Datatype type, MPI_Request* request) {
    return MPI_Isend(data, count, type, to, tag, state_->comm, request);
  });
}

Request Communicator::start_receive(void* data, std::size_t bytes, int from, int tag) const {
  return start(bytes, "MPI_Irecv", [&](int count, MPI_Datatype type, MPI_Request* request) {
    return MPI_Irecv(data, count, type, from, tag, state_->comm, request);
  });
}

Request Communicator::start_all_gather(const void* mine, void* all,
                                       std::size_t bytes_per_rank) const {
  return start(bytes_per_rank, "MPI_Iallgather",
               [&](int count, MPI_Datatype type, MPI_Request* request) {
                 return MPI_Iallgather(mine, count, type, all, count, type, state_->comm, request);
               });
}

Request Communicator::start_all_to_all(const void* parts, void* received,
                                       std::size_t bytes_per_rank) const {
  return start(
      bytes_per_rank, "MPI_Ialltoall", [&](int count, MPI_Datatype type, MPI_Request* request) {
        return MPI_Ialltoall(parts, count, type, received, count, type, state_->comm, request);
      });
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
  Request request =
      start(data->size(), "MPI_Imrecv", [&](int count, MPI_Datatype type, MPI_Request* receiving) {
        return MPI_Imrecv(data->data(), count, type, &message, receiving);
      });
  return Communicator::State::Arriving{status.MPI_SOURCE, tag, std::move(data), std::move(request)};
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
