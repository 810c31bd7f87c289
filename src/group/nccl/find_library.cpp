#include <bit>
#include <cstdlib>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <nccl.h>

#include "dstune/base/error.hpp"
#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(Result::remote_error) == ncclRemoteError &&
              static_cast<int>(Result::in_progress) == ncclInProgress);

/// The functions that are called, by the types of the header.
struct Functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank_config;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

Result from(ncclResult_t result) {
  return static_cast<Result>(result);
}
ncclComm_t native(Comm comm) {
  return reinterpret_cast<ncclComm_t>(comm);
}
cudaStream_t native_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}
ncclRedOp_t native(Reduction op) {
  return op == Reduction::sum ? ncclSum : ncclAvg;
}
ncclDataType_t native(DType type) {
  switch (type) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i8:
      return ncclInt8;
  }
  throw LogicError("an element type without a name in NCCL");
}
std::size_t size_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

ncclConfig_t config_of(bool shares) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = shares ? 1 : 0;
  return config;
}

class LoadedLibrary : public Library {
 public:
  LoadedLibrary(const Functions& functions, int version)
      : functions_(functions), version_(version) {}

  [[nodiscard]] int version() const override { return version_; }
  std::string error_text(Result result) override {
    std::string text = functions_.get_error_string(static_cast<ncclResult_t>(result));
    const char* const last = functions_.get_last_error(nullptr);
    if (last != nullptr && *last != '\0') text += ": " + std::string(last);
    return text;
  }

  Result get_unique_id(UniqueId& id) override {
    ncclUniqueId made{};
    const Result result = from(functions_.get_unique_id(&made));
    id = std::bit_cast<UniqueId>(made);
    return result;
  }
  Result init(Comm& made, int size, const UniqueId& id, int rank, bool shares) override {
    ncclConfig_t config = config_of(shares);
    return from(functions_.init_rank_config(reinterpret_cast<ncclComm_t*>(&made), size,
                                            std::bit_cast<ncclUniqueId>(id), rank, &config));
  }
  Result split(Comm parent, int color, int key, Comm& made, bool shares) override {
    ncclConfig_t config = config_of(shares);
    return from(functions_.split(native(parent), color, key, reinterpret_cast<ncclComm_t*>(&made),
                                 &config));
  }
  Result async_error(Comm comm, Result& state) override {
    ncclResult_t native_state = ncclSuccess;
    const Result result = from(functions_.get_async_error(native(comm), &native_state));
    state = from(native_state);
    return result;
  }
  Result finalize(Comm comm) override { return from(functions_.finalize(native(comm))); }
  Result destroy(Comm comm) override { return from(functions_.destroy(native(comm))); }
  Result abort(Comm comm) override { return from(functions_.abort(native(comm))); }

  Result group_start() override { return from(functions_.group_start()); }
  Result group_end() override { return from(functions_.group_end()); }
  Result all_reduce(const Buffers& b, Reduction op, Comm comm, void* stream) override {
    return from(functions_.all_reduce(b.in, b.out, size_of(b.count), native(b.type), native(op),
                                      native(comm), native_stream(stream)));
  }
  Result reduce(const Buffers& b, Reduction op, int root, Comm comm, void* stream) override {
    return from(functions_.reduce(b.in, b.out, size_of(b.count), native(b.type), native(op), root,
                                  native(comm), native_stream(stream)));
  }
  Result reduce_scatter(const Buffers& b, Reduction op, Comm comm, void* stream) override {
    return from(functions_.reduce_scatter(b.in, b.out, size_of(b.count), native(b.type), native(op),
                                          native(comm), native_stream(stream)));
  }
  Result all_gather(const Buffers& b, Comm comm, void* stream) override {
    return from(functions_.all_gather(b.in, b.out, size_of(b.count), native(b.type), native(comm),
                                      native_stream(stream)));
  }
  Result send(const void* data, std::int64_t count, DType type, int peer, Comm comm,
              void* stream) override {
    return from(functions_.send(data, size_of(count), native(type), peer, native(comm),
                                native_stream(stream)));
  }
  Result receive(void* data, std::int64_t count, DType type, int peer, Comm comm,
                 void* stream) override {
    return from(functions_.receive(data, size_of(count), native(type), peer, native(comm),
                                   native_stream(stream)));
  }

 private:
  Functions functions_;
  int version_;
};

/// Of a library that stays open: what it leaves behind in threads can not be unloaded.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

/// As the dynamic linker finds it, else beside the header that this was built with.
void* open(const std::string& file, std::string& why_not) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const said = dlerror();
  why_not = said == nullptr ? file + " can not be loaded" : said;
  if (file.find('/') != std::string::npos) return nullptr;
  return dlopen((DSTUNE_NCCL_FOLDER "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string file_of(void* symbol, const std::string& asked_for) {
  Dl_info info{};
  const bool is_known = dladdr(symbol, &info) != 0 && info.dli_fname != nullptr;
  return is_known ? info.dli_fname : asked_for;
}

}  // namespace

FoundLibrary find_library(const std::string& file) {
  // Else NCCL takes it from the user for what each communicator was asked to be, and blocks.
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  std::string why_not;
  void* const library = open(file, why_not);
  if (library == nullptr) return {nullptr, why_not};
  Functions functions{};
  Symbols symbols(library);
  symbols.find(functions.get_version, "ncclGetVersion");
  if (functions.get_version == nullptr) return {nullptr, file + " has no ncclGetVersion"};
  const std::string path = file_of(reinterpret_cast<void*>(functions.get_version), file);
  int version = 0;
  if (functions.get_version(&version) != ncclSuccess)
    return {nullptr, path + " does not tell its version"};
  if (version < min_version) {
    return {nullptr, path + " is NCCL " + version_text(version) + ", and " +
                         version_text(min_version) + " or newer is needed"};
  }
  symbols.find(functions.get_error_string, "ncclGetErrorString");
  symbols.find(functions.get_last_error, "ncclGetLastError");
  symbols.find(functions.get_unique_id, "ncclGetUniqueId");
  symbols.find(functions.init_rank_config, "ncclCommInitRankConfig");
  symbols.find(functions.split, "ncclCommSplit");
  symbols.find(functions.get_async_error, "ncclCommGetAsyncError");
  symbols.find(functions.finalize, "ncclCommFinalize");
  symbols.find(functions.destroy, "ncclCommDestroy");
  symbols.find(functions.abort, "ncclCommAbort");
  symbols.find(functions.group_start, "ncclGroupStart");
  symbols.find(functions.group_end, "ncclGroupEnd");
  symbols.find(functions.all_reduce, "ncclAllReduce");
  symbols.find(functions.reduce, "ncclReduce");
  symbols.find(functions.reduce_scatter, "ncclReduceScatter");
  symbols.find(functions.all_gather, "ncclAllGather");
  symbols.find(functions.send, "ncclSend");
  symbols.find(functions.receive, "ncclRecv");
  if (!symbols.missing().empty()) return {nullptr, path + " lacks " + symbols.missing()};
  return {std::make_shared<LoadedLibrary>(functions, version),
          version_text(version) + " (" + path + ")"};
}

}  // namespace dstune::nccl
