// small_pages_launcher PROGRAM ARGUMENTS...: becomes the program, in whose memory the system puts
// no huge page of its own accord or on advice: a page counts when it is touched, not with its 511
// neighbours whenever the system comes to look.
#include <cstdio>

#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "use: %s PROGRAM ARGUMENTS...\n", argv[0]);
    return 2;
  }
  if (prctl(PR_SET_THP_DISABLE, 1UL, 0UL, 0UL, 0UL) != 0) {
    std::perror("prctl");
    return 1;
  }
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 1;
}
