// no_process_launcher PROGRAM ARGUMENTS...: becomes the program, which is killed with SIGSYS the
// moment it starts a process or another program. Threads are allowed. Exit code 77 where the kernel
// does not allow such a filter.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int skipped = 77;

constexpr sock_filter load(std::size_t offset) {
  return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)};
}
/// Where the loaded word equals `value` goes on, else skips `otherwise` steps.
constexpr sock_filter unless_equal_skip(std::uint32_t value, std::uint8_t otherwise) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, otherwise, value};
}
constexpr sock_filter unless_bits_skip(std::uint32_t bits, std::uint8_t otherwise) {
  return {BPF_JMP | BPF_JSET | BPF_K, 0, otherwise, bits};
}
constexpr sock_filter answer(std::uint32_t value) {
  return {BPF_RET | BPF_K, 0, 0, value};
}

/// `path`: the address of the name given to the one execve that is allowed, this program's own. It
/// is an address of this process, which the next program's names do not have.
bool forbid_processes(const char* path) {
  const auto address = reinterpret_cast<std::uintptr_t>(path);
  const auto low = static_cast<std::uint32_t>(address);
  const auto high = static_cast<std::uint32_t>(address >> 32);
  // The low word of a 64-bit argument comes first on the machines this runs on.
  constexpr std::size_t first_argument = offsetof(seccomp_data, args);
  const std::array filter{
      load(offsetof(seccomp_data, nr)),
#ifdef __NR_fork
      unless_equal_skip(__NR_fork, 1), answer(SECCOMP_RET_KILL_PROCESS),
      unless_equal_skip(__NR_vfork, 1), answer(SECCOMP_RET_KILL_PROCESS),
#endif
      unless_equal_skip(__NR_execveat, 1), answer(SECCOMP_RET_KILL_PROCESS),
      // Its flags are behind a pointer that a filter can not follow; the C library then uses clone.
      unless_equal_skip(__NR_clone3, 1), answer(SECCOMP_RET_ERRNO | ENOSYS),
      unless_equal_skip(__NR_clone, 4), load(first_argument), unless_bits_skip(CLONE_THREAD, 1),
      answer(SECCOMP_RET_ALLOW), answer(SECCOMP_RET_KILL_PROCESS),
      unless_equal_skip(__NR_execve, 6), load(first_argument), unless_equal_skip(low, 3),
      load(first_argument + 4), unless_equal_skip(high, 1), answer(SECCOMP_RET_ALLOW),
      answer(SECCOMP_RET_KILL_PROCESS), answer(SECCOMP_RET_ALLOW)};
  sock_fprog program{static_cast<unsigned short>(filter.size()),
                     const_cast<sock_filter*>(filter.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "use: %s PROGRAM ARGUMENTS...\n", argv[0]);
    return 2;
  }
  if (!forbid_processes(argv[1])) {
    std::perror("seccomp");
    return skipped;
  }
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 1;
}
