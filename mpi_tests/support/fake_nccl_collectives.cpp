#include <algorithm>
#include <array>
#include <cstring>

#include "dstune/base/error.hpp"
#include "fake_nccl.hpp"
#include "group/average.hpp"

namespace dstune::test {

using nccl::Buffers;
using nccl::Comm;
using nccl::Reduction;
using nccl::Result;
using State = ncclComm::State;

namespace {

/// The head of a message, before the data: the collective that its sender is at.
constexpr std::size_t head_bytes = 64;

std::string name_of(const char* call, const Buffers& buffers) {
  constexpr std::array types{"f32", "bf16", "f16", "i32", "i8"};
  return std::string(call) + " " + types.at(static_cast<std::size_t>(buffers.type)) + " " +
         std::to_string(buffers.count);
}
std::string name_of(const char* call, Reduction op, const Buffers& buffers) {
  const char* const name = op == Reduction::sum ? " sum" : " average";
  return name_of((std::string(call) + name).c_str(), buffers);
}

}  // namespace

class FakeNccl::Exchanged {
 public:
  Exchanged(int size, const std::string& what)
      : all_(static_cast<std::size_t>(size)), head_(head_bytes) {
    std::memcpy(head_.data(), what.data(), std::min(what.size(), head_bytes));
  }
  [[nodiscard]] Message with_head(const Bytes& data) const {
    Message message = head_;
    message.insert(message.end(), data.first(), data.end());
    return message;
  }
  /// Tells whether the rank's is there.
  bool look(Post& post, const std::string& name, int rank) {
    std::optional<Message>& one = all_[static_cast<std::size_t>(rank)];
    if (!one) one = post.read(name);
    require(!one || std::equal(head_.begin(), head_.end(), one->begin()),
            "ranks are at different collectives of a communicator");
    return one.has_value();
  }
  [[nodiscard]] const std::byte* of(std::size_t rank) const {
    return all_[rank]->data() + head_bytes;
  }
  void reduce_to(const Buffers& buffers, Reduction op, std::size_t first_byte) const {
    std::vector<const void*> parts;
    for (std::size_t rank = 0; rank < all_.size(); ++rank) parts.push_back(of(rank) + first_byte);
    sum_and_divide(buffers.out, parts, op == Reduction::sum ? 1 : static_cast<int>(parts.size()),
                   buffers.count, buffers.type, Write::cached);
  }

 private:
  std::vector<std::optional<Message>> all_;
  Message head_;
};

Result FakeNccl::group_start() {
  const std::lock_guard lock(mutex_);
  ++group().depth;
  return Result::success;
}

Result FakeNccl::group_end() {
  Group ended;
  {
    const std::lock_guard lock(mutex_);
    if (--group().depth > 0) return Result::success;
    ended = std::move(group());
    groups_.erase(std::this_thread::get_id());
    if (ended.depth < 0) return refuse("group_end without a start");
    if (ended.has_aborts && !ended.parts.empty()) refuse("a group that aborts and transfers");
  }
  if (ended.parts.empty()) return Result::success;
  return enqueue("transfers " + std::to_string(ended.parts.size()), ended.comm, ended.stream, {},
                 trading(ended.comm, ended.parts));
}

Task FakeNccl::exchanging(Comm comm, const std::string& what, const Bytes& mine, const Use& use) {
  return [=, this]() -> Turn {
    if (!post_ || comm->is_gone) return [] { return true; };
    const auto all = std::make_shared<Exchanged>(comm->size, what);
    const std::string name = std::to_string(comm->begun++);
    post_->put(comm->name(name, comm->rank), all->with_head(mine));
    return [=, this] {
      // An aborted call has ended without doing anything.
      if (comm->is_gone) return true;
      for (int rank = 0; rank < comm->size; ++rank)
        if (!all->look(*post_, comm->name(name, rank), rank)) return false;
      use(*all);
      // Whoever has posted this one has read what was posted for the one before.
      post_->remove(std::exchange(comm->last_post, comm->name(name, comm->rank)));
      return true;
    };
  };
}

/// All ranks of the communicator have a part in it.
Task FakeNccl::trading(Comm comm, const std::vector<Part>& parts) {
  return [=, this]() -> Turn {
    const auto name = [comm, number = comm->begun](int from, int to) {
      return comm->name(std::to_string(number) + ".to" + std::to_string(to), from);
    };
    for (const auto& [peer, bytes, received] : parts)
      if (post_ && received == nullptr)
        post_->put(name(comm->rank, peer), message_of(bytes.begin, bytes.count));
    const Use use = [=, this](const Exchanged&) {
      for (const auto& [peer, bytes, received] : parts) {
        if (received == nullptr) continue;
        const auto message = post_->read(name(peer, comm->rank));
        require(message && message->size() == bytes.count, "ranks trade what the others expect");
        std::memcpy(received, message->data(), bytes.count);
        post_->remove(name(peer, comm->rank));
      }
    };
    return exchanging(comm, "transfers", {}, use)();
  };
}

Result FakeNccl::enqueue(const std::string& what, Comm comm, void* stream, const Memory& memory,
                         const Task& task) {
  std::unique_lock lock(mutex_);
  const std::string kind = what.substr(0, what.find(' '));
  note(what + " of " + std::to_string(comm == nullptr ? 0 : comm->number) + streams_->name(stream));
  if (group().depth > 0) return refuse(kind + " inside a group");
  if (const std::string why = violation(comm, kind); !why.empty()) return refuse(why);
  if (const std::string why = memory_violation(memory); !why.empty()) return refuse(what + why);
  if (held_up_ == kind) {
    held_up_.clear();
    changed_.wait(lock, [&] { return comm->state == State::gone; });
    return Result::success;
  }
  return begin(comm, kind, [&] {
    const auto use = std::make_shared<char>();
    std::erase_if(comm->uses, [](const auto& other) { return other.expired(); });
    comm->uses.push_back(use);
    return streams_->add(comm, stream, [use, task] { return task(); });
  });
}

Result FakeNccl::all_reduce(const Buffers& b, Reduction op, Comm comm, void* stream) {
  const Bytes read{b.in, as_bytes(b.count, b.type)};
  return collective(name_of("all_reduce", op, b), comm, stream,
                    {read, {b.out, read.count}, read.first()},
                    [=](const Exchanged& all) { all.reduce_to(b, op, 0); });
}

Result FakeNccl::reduce(const Buffers& b, Reduction op, int root, Comm comm, void* stream) {
  const Bytes read{b.in, as_bytes(b.count, b.type)};
  const bool is_root = comm->rank == root;
  return collective(name_of("reduce", op, b) + " to " + std::to_string(root), comm, stream,
                    {read, {b.out, is_root ? read.count : 0}, read.first()},
                    [=](const Exchanged& all) {
                      if (is_root) all.reduce_to(b, op, 0);
                    });
}

Result FakeNccl::reduce_scatter(const Buffers& b, Reduction op, Comm comm, void* stream) {
  const std::size_t bytes = as_bytes(b.count, b.type);
  const std::size_t own_byte = bytes * static_cast<std::size_t>(comm->rank);
  const Bytes read{b.in, bytes * static_cast<std::size_t>(comm->size)};
  return collective(name_of("reduce_scatter", op, b), comm, stream,
                    {read, {b.out, bytes}, read.first() + own_byte},
                    [=](const Exchanged& all) { all.reduce_to(b, op, own_byte); });
}

Result FakeNccl::all_gather(const Buffers& b, Comm comm, void* stream) {
  const std::size_t bytes = as_bytes(b.count, b.type);
  const auto size = static_cast<std::size_t>(comm->size);
  auto* const out = static_cast<std::byte*>(b.out);
  return collective(
      name_of("all_gather", b), comm, stream,
      {{b.in, bytes}, {out, bytes * size}, out + bytes * static_cast<std::size_t>(comm->rank)},
      [=](const Exchanged& all) {
        for (std::size_t rank = 0; rank < size; ++rank)
          std::memcpy(out + rank * bytes, all.of(rank), bytes);
      });
}

Result FakeNccl::add_part(const std::string& call, Comm comm, void* stream, const Part& part) {
  const std::lock_guard lock(mutex_);
  Group& own = group();
  if (const std::string why = violation(comm, call); !why.empty()) return refuse(why);
  if (own.depth == 0) return refuse(call + " outside of a group");
  if (!own.parts.empty() && (own.comm != comm || own.stream != stream))
    return refuse("a group on two communicators or streams");
  for (const Part& other : own.parts) {
    const bool writes = part.received != nullptr || other.received != nullptr;
    if (writes && part.bytes.overlaps(other.bytes))
      return refuse(call + " where another of its group reads or writes");
  }
  if (!streams_->reaches(part.bytes.begin, part.bytes.count))
    return refuse(call + " goes beyond what was allocated");
  own.comm = comm;
  own.stream = stream;
  own.parts.push_back(part);
  return injected(call).value_or(Result::success);
}

Result FakeNccl::send(const void* data, std::int64_t count, DType type, int peer, Comm comm,
                      void* stream) {
  return add_part("send", comm, stream, {peer, {data, as_bytes(count, type)}});
}

Result FakeNccl::receive(void* data, std::int64_t count, DType type, int peer, Comm comm,
                         void* stream) {
  return add_part("receive", comm, stream, {peer, {data, as_bytes(count, type)}, data});
}

}  // namespace dstune::test
