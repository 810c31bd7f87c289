#include "dstune/base/output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <streambuf>

#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// Characters to a descriptor, without a buffer of its own: results are written in few pieces.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor) {}

 protected:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof())) return 0;
    const char one = traits_type::to_char_type(character);
    return xsputn(&one, 1) == 1 ? character : traits_type::eof();
  }

  std::streamsize xsputn(const char* text, std::streamsize count) override {
    std::streamsize written = 0;
    while (written < count) {
      const ssize_t now =
          ::write(descriptor_, text + written, static_cast<std::size_t>(count - written));
      if (now < 0 && errno == EINTR) continue;
      if (now < 0) break;
      written += now;
    }
    return written;
  }

 private:
  int descriptor_;
};

struct Redirected {
  explicit Redirected(int descriptor) : buffer(descriptor), stream(&buffer) {}
  DescriptorBuffer buffer;
  std::ostream stream;
};

// Never destroyed: who leaves by _exit may still write.
Redirected* redirected = nullptr;

}  // namespace

std::ostream& output() {
  return redirected != nullptr ? redirected->stream : std::cout;
}

void redirect_output() {
  if (redirected != nullptr) return;
  std::fflush(stdout);
  const int results = ::dup(STDOUT_FILENO);
  if (results < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw IoError(std::string("stdout can not be kept apart: ") + std::strerror(errno));
  redirected = std::make_unique<Redirected>(results).release();
}

bool has_lost_output() {
  if (output().flush()) return false;
  struct stat kind {};
  return ::fstat(STDOUT_FILENO, &kind) == 0 && !S_ISFIFO(kind.st_mode) && !S_ISSOCK(kind.st_mode);
}

void flush_output() {
  output().flush();
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

}  // namespace dstune
