#pragma once
// MPI behind an interface in types of our own. A library beside the program implements it
// (comm/mpi) and is opened where a job starts, so that all else runs where there is no MPI.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dstune {

/// How a call of MPI ended.
struct [[nodiscard]] MpiResult {
  const char* call = "";  ///< the function of MPI
  int code = 0;           ///< MPI's own
  [[nodiscard]] bool has_failed() const { return code != 0; }
};

/// The calls of MPI that comm makes. Nothing throws: MPI's errors are returned.
class MpiLibrary {
 public:
  /// MPI's handles: pointers in Open MPI, numbers in MPICH.
  enum class Comm : std::intptr_t {};
  enum class Window : std::intptr_t {};
  enum class Message : std::intptr_t {};
  /// A non-blocking operation. Where it has more bytes than an int counts, `type` is its own, and
  /// lives as long.
  struct Operation {
    std::intptr_t request = 0;
    std::intptr_t type = 0;
  };
  /// A message that is received by its match, and by nobody else.
  struct Match {
    bool is_found = false;
    Message message{};
    int source = -1;
    std::size_t bytes = 0;
  };

  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  /// These need no running MPI.
  [[nodiscard]] virtual std::string version() const = 0;
  [[nodiscard]] virtual bool is_running() const = 0;

  virtual MpiResult start(int& argc, char**& argv) const = 0;
  /// Receives what nobody has received, and ends MPI. Collective over the world.
  virtual MpiResult finalize() const = 0;
  virtual void abort(int exit_code) const = 0;
  [[nodiscard]] virtual std::string error_text(int code) const = 0;
  /// Tells whether MPI_THREAD_MULTIPLE is granted.
  virtual MpiResult query_threads(bool& is_multiple) const = 0;

  [[nodiscard]] virtual Comm world() const = 0;
  virtual MpiResult return_errors(Comm comm) const = 0;
  virtual MpiResult rank(Comm comm, int& rank) const = 0;
  virtual MpiResult size(Comm comm, int& size) const = 0;
  [[nodiscard]] virtual int fortran_handle(Comm comm) const = 0;
  virtual MpiResult duplicate(Comm comm, Comm& copy) const = 0;
  virtual MpiResult split_shared(Comm comm, int key, Comm& node) const = 0;
  virtual MpiResult create_group(Comm comm, std::span<const int> ranks, int tag,
                                 Comm& made) const = 0;
  virtual void free(Comm comm) const = 0;

  /// Blocking.
  virtual MpiResult barrier(Comm comm) const = 0;
  virtual MpiResult broadcast(Comm comm, void* data, std::size_t bytes, int root) const = 0;
  /// One number of each rank.
  virtual MpiResult all_gather(Comm comm, std::uint64_t mine, std::uint64_t* all) const = 0;
  /// `counts` bytes of each rank, at `places` in `all`.
  virtual MpiResult all_gather(Comm comm, std::span<const std::byte> mine, void* all,
                               const int* counts, const int* places) const = 0;

  virtual MpiResult start_send(Comm comm, const void* data, std::size_t bytes, int to, int tag,
                               Operation& started) const = 0;
  virtual MpiResult start_receive(Comm comm, void* data, std::size_t bytes, int from, int tag,
                                  Operation& started) const = 0;
  virtual MpiResult start_all_gather(Comm comm, const void* mine, void* all,
                                     std::size_t bytes_per_rank, Operation& started) const = 0;
  /// A message with the tag, from any rank.
  virtual MpiResult match(Comm comm, int tag, Match& match) const = 0;
  virtual MpiResult start_receive(const Match& match, void* data, Operation& started) const = 0;
  /// Once it is done the operation is over, and is tested no more.
  virtual MpiResult test(Operation& operation, bool& is_done) const = 0;

  /// Memory that the ranks of a node share, `bytes` each.
  virtual MpiResult allocate(Comm node, std::size_t bytes, Window& window) const = 0;
  virtual MpiResult segment(Window window, int rank, void*& start) const = 0;
  virtual void free(Window window) const = 0;

 protected:
  MpiLibrary() = default;
  ~MpiLibrary() = default;
};

/// The library's only symbol, and its type.
inline constexpr const char* mpi_library_symbol = "dstune_mpi_library";
using GetMpiLibrary = const MpiLibrary*();

/// Null until it is opened.
inline std::atomic<const MpiLibrary*> opened_mpi{nullptr};
/// Opens it, once a process. Throws MpiError saying what is missing. Local.
const MpiLibrary& open_mpi();
inline const MpiLibrary& mpi() {
  const MpiLibrary* const opened = opened_mpi.load(std::memory_order_acquire);
  return opened != nullptr ? *opened : open_mpi();
}

}  // namespace dstune
