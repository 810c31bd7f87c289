// The library that calls MPI. It has nothing of the program but the interface.

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include <mpi.h>

#include "mpi_library.hpp"

namespace dstune {
namespace {

constexpr std::size_t largest_count = std::numeric_limits<int>::max();
constexpr std::size_t large_bytes = std::size_t{1} << 30;

/// MPI's handle for ours, and back: a pointer or a number.
template <class Native, class Ours>
Native native(Ours handle) {
  static_assert(sizeof(Native) <= sizeof handle);
  Native value{};
  std::memcpy(&value, &handle, sizeof value);
  return value;
}
template <class Ours, class Native>
Ours ours(Native handle) {
  static_assert(sizeof handle <= sizeof(Ours));
  Ours value{};
  std::memcpy(&value, &handle, sizeof handle);
  return value;
}

/// Calls until one fails.
class Calls {
 public:
  template <class... Parameters, class... Arguments>
  Calls& then(const char* name, int (*function)(Parameters...), Arguments... arguments) {
    if (!result_.has_failed()) result_ = {name, function(arguments...)};
    return *this;
  }
  [[nodiscard]] MpiResult result() const { return result_; }
  [[nodiscard]] bool have_failed() const { return result_.has_failed(); }

 private:
  MpiResult result_;
};
#define DSTUNE_CALL(function) #function, function

/// `bytes` bytes as a count and a type, whatever their number: MPI's counts are ints. A larger type
/// is one element: gibibytes and the rest.
class Block {
 public:
  explicit Block(std::size_t bytes) {
    if (bytes <= largest_count) {
      count_ = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype gibibyte = MPI_DATATYPE_NULL;
    made_.then(DSTUNE_CALL(MPI_Type_contiguous), static_cast<int>(large_bytes), MPI_BYTE,
               &gibibyte);
    const std::array lengths{static_cast<int>(bytes / large_bytes),
                             static_cast<int>(bytes % large_bytes)};
    const std::array places{MPI_Aint{0}, static_cast<MPI_Aint>(bytes / large_bytes * large_bytes)};
    const std::array types{gibibyte, MPI_BYTE};
    made_.then(DSTUNE_CALL(MPI_Type_create_struct), 2, lengths.data(), places.data(), types.data(),
               &type_);
    made_.then(DSTUNE_CALL(MPI_Type_commit), &type_);
    made_.then(DSTUNE_CALL(MPI_Type_free), &gibibyte);
  }
  [[nodiscard]] Calls made() const { return made_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  Calls made_;
  int count_ = 1;
  MPI_Datatype type_ = MPI_BYTE;
};

void free_type(MPI_Datatype type) {
  if (type != MPI_BYTE && type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
}

/// `call(count, type, request)` starts an operation on `bytes` bytes.
template <class Call>
MpiResult start_operation(const char* name, std::size_t bytes, MpiLibrary::Operation& started,
                          const Call& call) {
  const Block block(bytes);
  MpiResult result = block.made().result();
  MPI_Request request = MPI_REQUEST_NULL;
  if (!result.has_failed()) result = {name, call(block.count(), block.type(), &request)};
  if (result.has_failed()) {
    free_type(block.type());
    return result;
  }
  started = {ours<std::intptr_t>(request), ours<std::intptr_t>(block.type())};
  return result;
}

class NativeLibrary final : public MpiLibrary {
 public:
  [[nodiscard]] std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    return MPI_Get_library_version(text, &length) == MPI_SUCCESS ? text : "";
  }

  [[nodiscard]] bool is_running() const override {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
  }

  MpiResult start(int& argc, char**& argv) const override {
    int granted = MPI_THREAD_SINGLE;
    return Calls()
        .then(DSTUNE_CALL(MPI_Init_thread), &argc, &argv, MPI_THREAD_MULTIPLE, &granted)
        .then(DSTUNE_CALL(MPI_Comm_set_errhandler), MPI_COMM_WORLD, MPI_ERRORS_RETURN)
        .then(DSTUNE_CALL(MPI_Comm_set_errhandler), MPI_COMM_SELF, MPI_ERRORS_RETURN)
        .result();
  }

  MpiResult finalize() const override {
    // Heartbeats of the last seconds were not received, and MPICH 4.2 refuses to end then. Behind
    // the barrier nobody sends any more.
    MPI_Barrier(MPI_COMM_WORLD);
    for (int is_there = 1; is_there != 0;) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &status) !=
          MPI_SUCCESS)
        break;
      if (is_there == 0) break;
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::vector<std::byte> unread(static_cast<std::size_t>(std::max(bytes, 0)));
      MPI_Recv(unread.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
    }
    return Calls().then(DSTUNE_CALL(MPI_Finalize)).result();
  }

  void abort(int exit_code) const override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

  [[nodiscard]] std::string error_text(int code) const override {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return {text, static_cast<std::size_t>(length)};
  }

  MpiResult query_threads(bool& is_multiple) const override {
    int granted = MPI_THREAD_SINGLE;
    const Calls calls = Calls().then(DSTUNE_CALL(MPI_Query_thread), &granted);
    is_multiple = granted == MPI_THREAD_MULTIPLE;
    return calls.result();
  }

  [[nodiscard]] Comm world() const override { return ours<Comm>(MPI_COMM_WORLD); }

  MpiResult return_errors(Comm comm) const override {
    return Calls()
        .then(DSTUNE_CALL(MPI_Comm_set_errhandler), native<MPI_Comm>(comm), MPI_ERRORS_RETURN)
        .result();
  }

  MpiResult rank(Comm comm, int& rank) const override {
    return Calls().then(DSTUNE_CALL(MPI_Comm_rank), native<MPI_Comm>(comm), &rank).result();
  }

  MpiResult size(Comm comm, int& size) const override {
    return Calls().then(DSTUNE_CALL(MPI_Comm_size), native<MPI_Comm>(comm), &size).result();
  }

  [[nodiscard]] int fortran_handle(Comm comm) const override {
    return static_cast<int>(MPI_Comm_c2f(native<MPI_Comm>(comm)));
  }

  MpiResult duplicate(Comm comm, Comm& copy) const override {
    MPI_Comm made = MPI_COMM_NULL;
    const Calls calls = Calls().then(DSTUNE_CALL(MPI_Comm_dup), native<MPI_Comm>(comm), &made);
    copy = ours<Comm>(made);
    return calls.result();
  }

  MpiResult split_shared(Comm comm, int key, Comm& node) const override {
    MPI_Comm made = MPI_COMM_NULL;
    const Calls calls = Calls().then(DSTUNE_CALL(MPI_Comm_split_type), native<MPI_Comm>(comm),
                                     MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &made);
    node = ours<Comm>(made);
    return calls.result();
  }

  MpiResult create_group(Comm comm, std::span<const int> ranks, int tag,
                         Comm& made) const override {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm group = MPI_COMM_NULL;
    Calls calls;
    calls.then(DSTUNE_CALL(MPI_Comm_group), native<MPI_Comm>(comm), &all)
        .then(DSTUNE_CALL(MPI_Group_incl), all, static_cast<int>(ranks.size()), ranks.data(),
              &members)
        .then(DSTUNE_CALL(MPI_Comm_create_group), native<MPI_Comm>(comm), members, tag, &group)
        .then(DSTUNE_CALL(MPI_Group_free), &members)
        .then(DSTUNE_CALL(MPI_Group_free), &all);
    made = ours<Comm>(group);
    return calls.result();
  }

  void free(Comm comm) const override {
    auto handle = native<MPI_Comm>(comm);
    MPI_Comm_free(&handle);
  }

  MpiResult barrier(Comm comm) const override {
    return Calls().then(DSTUNE_CALL(MPI_Barrier), native<MPI_Comm>(comm)).result();
  }

  MpiResult broadcast(Comm comm, void* data, std::size_t bytes, int root) const override {
    const Block block(bytes);
    const MpiResult result = block.made()
                                 .then(DSTUNE_CALL(MPI_Bcast), data, block.count(), block.type(),
                                       root, native<MPI_Comm>(comm))
                                 .result();
    free_type(block.type());
    return result;
  }

  MpiResult all_gather(Comm comm, std::uint64_t mine, std::uint64_t* all) const override {
    return Calls()
        .then(DSTUNE_CALL(MPI_Allgather), &mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T,
              native<MPI_Comm>(comm))
        .result();
  }

  MpiResult all_gather(Comm comm, std::span<const std::byte> mine, void* all, const int* counts,
                       const int* places) const override {
    return Calls()
        .then(DSTUNE_CALL(MPI_Allgatherv), mine.data(), static_cast<int>(mine.size()), MPI_BYTE,
              all, counts, places, MPI_BYTE, native<MPI_Comm>(comm))
        .result();
  }

  MpiResult start_send(Comm comm, const void* data, std::size_t bytes, int to, int tag,
                       Operation& started) const override {
    return start_operation(
        "MPI_Isend", bytes, started, [=](int count, MPI_Datatype type, MPI_Request* request) {
          return MPI_Isend(data, count, type, to, tag, native<MPI_Comm>(comm), request);
        });
  }

  MpiResult start_receive(Comm comm, void* data, std::size_t bytes, int from, int tag,
                          Operation& started) const override {
    return start_operation(
        "MPI_Irecv", bytes, started, [=](int count, MPI_Datatype type, MPI_Request* request) {
          return MPI_Irecv(data, count, type, from, tag, native<MPI_Comm>(comm), request);
        });
  }

  MpiResult start_all_gather(Comm comm, const void* mine, void* all, std::size_t bytes_per_rank,
                             Operation& started) const override {
    return start_operation("MPI_Iallgather", bytes_per_rank, started,
                           [=](int count, MPI_Datatype type, MPI_Request* request) {
                             return MPI_Iallgather(mine, count, type, all, count, type,
                                                   native<MPI_Comm>(comm), request);
                           });
  }

  MpiResult match(Comm comm, int tag, Match& match) const override {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    Calls calls;
    calls.then(DSTUNE_CALL(MPI_Improbe), MPI_ANY_SOURCE, tag, native<MPI_Comm>(comm), &found,
               &message, &status);
    if (calls.have_failed() || found == 0) return calls.result();
    MPI_Count bytes = 0;
    calls.then(DSTUNE_CALL(MPI_Get_elements_x), &status, MPI_BYTE, &bytes);
    match = {true, ours<Message>(message), status.MPI_SOURCE, static_cast<std::size_t>(bytes)};
    return calls.result();
  }

  MpiResult start_receive(const Match& match, void* data, Operation& started) const override {
    auto message = native<MPI_Message>(match.message);
    return start_operation("MPI_Imrecv", match.bytes, started,
                           [&](int count, MPI_Datatype type, MPI_Request* request) {
                             return MPI_Imrecv(data, count, type, &message, request);
                           });
  }

  MpiResult test(Operation& operation, bool& is_done) const override {
    auto request = native<MPI_Request>(operation.request);
    int flag = 0;
    const MpiResult result{"MPI_Test", MPI_Test(&request, &flag, MPI_STATUS_IGNORE)};
    operation.request = ours<std::intptr_t>(request);
    is_done = flag != 0;
    if (is_done) free_type(native<MPI_Datatype>(operation.type));
    return result;
  }

  MpiResult allocate(Comm node, std::size_t bytes, Window& window) const override {
    // A segment on pages of its own lies in the memory of the core that touches it first.
    MPI_Info info = MPI_INFO_NULL;
    Calls calls;
    MPI_Win made = MPI_WIN_NULL;
    void* base = nullptr;
    calls.then(DSTUNE_CALL(MPI_Info_create), &info)
        .then(DSTUNE_CALL(MPI_Info_set), info, "alloc_shared_noncontig", "true")
        .then(DSTUNE_CALL(MPI_Win_allocate_shared), static_cast<MPI_Aint>(bytes), 1, info,
              native<MPI_Comm>(node), &base, &made)
        .then(DSTUNE_CALL(MPI_Info_free), &info)
        .then(DSTUNE_CALL(MPI_Win_set_errhandler), made, MPI_ERRORS_RETURN);
    window = ours<Window>(made);
    return calls.result();
  }

  MpiResult segment(Window window, int rank, void*& start) const override {
    MPI_Aint bytes = 0;
    int unit = 0;
    return Calls()
        .then(DSTUNE_CALL(MPI_Win_shared_query), native<MPI_Win>(window), rank, &bytes, &unit,
              &start)
        .result();
  }

  void free(Window window) const override {
    auto handle = native<MPI_Win>(window);
    MPI_Win_free(&handle);
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiLibrary* dstune_mpi_library() {
  static const NativeLibrary library;
  return &library;
}

}  // namespace dstune
