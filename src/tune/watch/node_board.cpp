#include "watch/node_board.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/file.hpp"

namespace dstune {

/// All zero at first, as files in memory are.
struct NodeBoard::Memory {
  std::atomic<std::uint32_t> num_taken;
  std::atomic<std::uint32_t> has_path;
  std::array<char, 4096> path;
  std::array<Line, max_lines> lines;
};

namespace {

namespace fs = std::filesystem;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "or processes could not share them");

/// A node board that nobody has a line on may be one that is just being made.
constexpr std::chrono::seconds empty_for{60};

std::string prefix() {
  return fmt::format("dstune-board-{}-", ::geteuid());
}

bool is_own_file(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
}

/// Null where it can not be had. Its size is reserved, so that no later access can fail.
void* map_file(const std::string& path, int flags, std::size_t bytes) {
  const FileDescriptor file(::open(path.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || !is_own_file(file.value())) return nullptr;
  const bool is_new = (flags & O_CREAT) != 0;
  struct stat info {};
  if (is_new && ::posix_fallocate(file.value(), 0, static_cast<off_t>(bytes)) != 0) {
    ::unlink(path.c_str());  // no rank of the node gets more room than this one
    return nullptr;
  }
  if (::fstat(file.value(), &info) != 0 || info.st_size < static_cast<off_t>(bytes)) return nullptr;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool is_old(const fs::directory_entry& file) {
  std::error_code ignored;
  const auto written_at = file.last_write_time(ignored);
  return !ignored && fs::file_time_type::clock::now() - written_at > empty_for;
}

}  // namespace

NodeBoard::NodeBoard(Memory* memory, std::string path) : memory_(memory), path_(std::move(path)) {}

NodeBoard::~NodeBoard() {
  ::munmap(memory_, sizeof(Memory));
}

std::unique_ptr<NodeBoard> NodeBoard::attach(const Launch& launch, const std::string& folder) {
  if (launch.key.empty()) return nullptr;
  const std::string path = fmt::format("{}/{}{}", folder, prefix(), launch.key);
  auto* const memory = static_cast<Memory*>(map_file(path, O_CREAT, sizeof(Memory)));
  if (memory == nullptr) return nullptr;
  std::unique_ptr<NodeBoard> node_board(new NodeBoard(memory, path));
  const std::size_t number = memory->num_taken.fetch_add(1);
  if (number >= max_lines) return nullptr;
  node_board->own_line_ = number;
  Line& own = node_board->own();
  const ProcessId process = process_of(::getpid());
  own.world_rank = launch.world_rank;
  own.process_number = process.number;
  own.process_started_at = process.started_at;
  own.process_numbering = process_numbering();
  own.is_filled.store(1, std::memory_order_release);
  if (static_cast<int>(number) + 1 == launch.ranks_here) node_board->close();
  return node_board;
}

void NodeBoard::remove_stale(const std::string& folder) {
  std::error_code cause;
  const std::uint64_t numbering = process_numbering();
  for (fs::directory_iterator file(folder, cause), end; !cause && file != end;
       file.increment(cause)) {
    if (!file->path().filename().string().starts_with(prefix())) continue;
    auto* const memory = static_cast<Memory*>(map_file(file->path().string(), 0, sizeof(Memory)));
    const bool is_abandoned = is_old(*file);
    bool is_stale = is_abandoned;
    if (memory != nullptr) {
      const std::span lines(memory->lines.data(),
                            std::min<std::size_t>(memory->num_taken.load(), max_lines));
      if (!lines.empty())
        is_stale = std::ranges::all_of(lines, [&](const Line& line) {
          if (line.is_filled.load(std::memory_order_acquire) == 0) return is_abandoned;
          return line.process_numbering == numbering && is_gone(line.process());
        });
      ::munmap(memory, sizeof(Memory));
    }
    if (is_stale) ::unlink(file->path().c_str());
  }
}

NodeBoard::Line& NodeBoard::own() const {
  return memory_->lines[own_line_];
}

std::span<NodeBoard::Line> NodeBoard::lines() const {
  return std::span(memory_->lines)
      .first(std::min<std::size_t>(memory_->num_taken.load(), max_lines));
}

bool NodeBoard::sees_process(const Line& line) const {
  return line.process_numbering != 0 && line.process_numbering == own().process_numbering;
}

void NodeBoard::close() const noexcept {
  ::unlink(path_.c_str());
}

void NodeBoard::set_exit_status_path(const std::string& path) {
  if (path.size() >= memory_->path.size()) return;
  std::memcpy(memory_->path.data(), path.c_str(), path.size() + 1);
  memory_->has_path.store(1, std::memory_order_release);
}

std::string NodeBoard::exit_status_path() const {
  return memory_->has_path.load(std::memory_order_acquire) != 0 ? memory_->path.data() : "";
}

}  // namespace dstune
