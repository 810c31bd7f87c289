// limited_memory_launcher BYTES PROGRAM ARGUMENTS...: becomes the program, which the system gives
// no more than so many bytes of memory of its own.
#include <cstdio>
#include <cstdlib>

#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "use: %s BYTES PROGRAM ARGUMENTS...\n", argv[0]);
    return 2;
  }
  const rlim_t bytes = std::strtoull(argv[1], nullptr, 10);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) {
    std::perror("setrlimit");
    return 1;
  }
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 1;
}
