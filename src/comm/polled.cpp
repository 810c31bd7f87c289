// The communicator's operations that are started here and polled by their caller.
#include <set>

#include "mpi_state.hpp"

namespace dstune {

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
