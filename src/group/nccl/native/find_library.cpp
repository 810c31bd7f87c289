#include <bit>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <nccl.h>

#include "dstune/base/error.hpp"
#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(Result::remote_error) == ncclRemoteError &&
              static_cast<int>(Result::in_progress) == ncclInProgress);

/// Functions that a library has under names. It stays open: what it leaves behind in threads can
/// not be unloaded.
class Symbols {
 public:
  /// A function, of whatever type it is taken as.
  struct Address {
    void* value;
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(value);
    }
  };

  explicit Symbols(void* library) : library_(library) {}

  /// Null, and one more that is missing, where there is none.
  Address find(const char* name) {
    void* const found = dlsym(library_, name);
    if (found == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
    return {found};
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

/// The functions that are called, by the types of the header.
struct Functions {
  Symbols symbols;
  decltype(&ncclGetVersion) get_version = symbols.find("ncclGetVersion");
  decltype(&ncclGetErrorString) get_error_string = symbols.find("ncclGetErrorString");
  decltype(&ncclGetLastError) get_last_error = symbols.find("ncclGetLastError");
  decltype(&ncclGetUniqueId) get_unique_id = symbols.find("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_rank_config = symbols.find("ncclCommInitRankConfig");
  decltype(&ncclCommSplit) split = symbols.find("ncclCommSplit");
  decltype(&ncclCommGetAsyncError) get_async_error = symbols.find("ncclCommGetAsyncError");
  decltype(&ncclCommFinalize) finalize = symbols.find("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy = symbols.find("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = symbols.find("ncclCommAbort");
  decltype(&ncclGroupStart) group_start = symbols.find("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = symbols.find("ncclGroupEnd");
  decltype(&ncclAllReduce) all_reduce = symbols.find("ncclAllReduce");
  decltype(&ncclReduce) reduce = symbols.find("ncclReduce");
  decltype(&ncclReduceScatter) reduce_scatter = symbols.find("ncclReduceScatter");
  decltype(&ncclAllGather) all_gather = symbols.find("ncclAllGather");
  decltype(&ncclSend) send = symbols.find("ncclSend");
  decltype(&ncclRecv) receive = symbols.find("ncclRecv");
};

Result from(ncclResult_t result) {
  return static_cast<Result>(result);
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
    return from(
        functions_.init_rank_config(&made, size, std::bit_cast<ncclUniqueId>(id), rank, &config));
  }
  Result split(Comm parent, int color, int key, Comm& made, bool shares) override {
    ncclConfig_t config = config_of(shares);
    return from(functions_.split(parent, color, key, &made, &config));
  }
  Result async_error(Comm comm, Result& state) override {
    ncclResult_t native_state = ncclSuccess;
    const Result result = from(functions_.get_async_error(comm, &native_state));
    state = from(native_state);
    return result;
  }
  Result finalize(Comm comm) override { return from(functions_.finalize(comm)); }
  Result destroy(Comm comm) override { return from(functions_.destroy(comm)); }
  Result abort(Comm comm) override { return from(functions_.abort(comm)); }

  Result group_start() override { return from(functions_.group_start()); }
  Result group_end() override { return from(functions_.group_end()); }
  Result all_reduce(const Buffers& b, Reduction op, Comm comm, void* stream) override {
    return from(functions_.all_reduce(b.in, b.out, size_of(b.count), native(b.type), native(op),
                                      comm, native_stream(stream)));
  }
  Result reduce(const Buffers& b, Reduction op, int root, Comm comm, void* stream) override {
    return from(functions_.reduce(b.in, b.out, size_of(b.count), native(b.type), native(op), root,
                                  comm, native_stream(stream)));
  }
  Result reduce_scatter(const Buffers& b, Reduction op, Comm comm, void* stream) override {
    return from(functions_.reduce_scatter(b.in, b.out, size_of(b.count), native(b.type), native(op),
                                          comm, native_stream(stream)));
  }
  Result all_gather(const Buffers& b, Comm comm, void* stream) override {
    return from(functions_.all_gather(b.in, b.out, size_of(b.count), native(b.type), comm,
                                      native_stream(stream)));
  }
  Result send(const void* data, std::int64_t count, DType type, int peer, Comm comm,
              void* stream) override {
    return from(
        functions_.send(data, size_of(count), native(type), peer, comm, native_stream(stream)));
  }
  Result receive(void* data, std::int64_t count, DType type, int peer, Comm comm,
                 void* stream) override {
    return from(
        functions_.receive(data, size_of(count), native(type), peer, comm, native_stream(stream)));
  }

 private:
  Functions functions_;
  int version_;
};

void* open(const std::string& file, const std::vector<std::string>& folders, std::string& why_not) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const said = dlerror();
  why_not = said == nullptr ? file + " can not be loaded" : said;
  if (file.find('/') != std::string::npos) return nullptr;
  for (const std::string& folder : folders) {
    library = dlopen((folder + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
  }
  return nullptr;
}

std::string file_of(void* symbol, const std::string& asked_for) {
  Dl_info info{};
  const bool is_known = dladdr(symbol, &info) != 0 && info.dli_fname != nullptr;
  return is_known ? info.dli_fname : asked_for;
}

}  // namespace

FoundLibrary find_library(const std::string& file, const std::vector<std::string>& folders) {
  std::string why_not;
  void* const library = open(file, folders, why_not);
  if (library == nullptr) return {nullptr, why_not};
  const Functions functions{Symbols(library)};
  if (functions.get_version == nullptr) return {nullptr, file + " has no ncclGetVersion"};
  const std::string path = file_of(reinterpret_cast<void*>(functions.get_version), file);
  int version = 0;
  if (functions.get_version(&version) != ncclSuccess)
    return {nullptr, path + " does not tell its version"};
  if (version < min_version) {
    return {nullptr, path + " is NCCL " + version_text(version) + ", and " +
                         version_text(min_version) + " or newer is needed"};
  }
  if (const std::string& missing = functions.symbols.missing(); !missing.empty())
    return {nullptr, path + " lacks " + missing};
  return {std::make_shared<LoadedLibrary>(functions, version),
          version_text(version) + " (" + path + ")"};
}

}  // namespace dstune::nccl
