#include "nccl_messages.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace dstune::emulated {

Message copy_of(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

Exchange::Exchange(Comm comm, const std::string& what)
    : comm_(std::move(comm)),
      name_(what + "." + std::to_string(comm_->done)),
      all_(static_cast<std::size_t>(comm_->size)) {}

bool Exchange::has_all(const void* data, std::size_t bytes) {
  if (!is_posted_) post(comm_->name(name_, comm_->rank), copy_of(data, bytes));
  is_posted_ = true;
  for (int rank = 0; rank < comm_->size; ++rank) {
    std::optional<Message>& one = all_[static_cast<std::size_t>(rank)];
    if (!one) one = read_post(comm_->name(name_, rank));
    if (!one) return false;
    if (one->size() != bytes) throw std::runtime_error("ranks differ in a collective of NCCL");
  }
  return true;
}

void Exchange::finish() {
  // Whoever has posted this one has read what was posted for the one before.
  if (!comm_->last_post.empty()) remove_post(comm_->last_post);
  comm_->last_post = comm_->name(name_, comm_->rank);
  ++comm_->done;
}

Turn trade(const Comm& comm, const std::vector<Part>& parts) {
  struct Missing {
    Part part;
    std::string name;
  };
  auto missing = std::make_shared<std::vector<Missing>>();
  for (const Part& part : parts) {
    const auto to = std::to_string(part.peer);
    if (part.sent != nullptr) {
      const std::string name = "to" + to + "." + std::to_string(comm->sent[part.peer]++);
      post(comm->name(name, comm->rank), copy_of(part.sent, part.bytes));
    } else {
      const std::string name =
          "to" + std::to_string(comm->rank) + "." + std::to_string(comm->received[part.peer]++);
      missing->push_back({part, comm->name(name, part.peer)});
    }
  }
  return [=] {
    std::erase_if(*missing, [](const Missing& one) {
      const std::optional<Message> message = read_post(one.name);
      if (!message) return false;
      if (message->size() != one.part.bytes)
        throw std::runtime_error("ranks differ in what they send and receive by NCCL");
      std::memcpy(one.part.received, message->data(), one.part.bytes);
      remove_post(one.name);
      return true;
    });
    if (!missing->empty() && !comm->is_aborted) return false;
    return true;
  };
}

}  // namespace dstune::emulated
