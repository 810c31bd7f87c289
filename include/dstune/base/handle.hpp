#pragma once
/// The one owner of C handles (MPI communicators, windows, file descriptors, CUDA streams, …):
/// nobody writes another move constructor.

#include <utility>

namespace dstune {

/// Traits has: `using Handle`, `static Handle null()`, `static void close(Handle) noexcept`.
/// close() is called once for every handle that is not null(). Move-only.
template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept : handle_(Traits::null()) {}
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  [[nodiscard]] Handle value() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != Traits::null(); }
  /// Gives the handle away; the caller closes it, or leaks it on purpose.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::null()); }
  void reset(Handle handle = Traits::null()) noexcept {
    Handle old = std::exchange(handle_, handle);
    if (old != Traits::null()) Traits::close(old);
  }

 private:
  Handle handle_;
};

}  // namespace dstune
