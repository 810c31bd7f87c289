// Makes a recorded space for search_bench from a gridsearch's results:
//   search_record TABLE.json SPACE.json PROFILE.json WORDS RESULTS_DIR...
// WORDS: how it was run and when. mpi_tests/bench/record_space.py does it all.
#include <cstdio>
#include <exception>

#include "search_table.hpp"

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: search_record TABLE SPACE PROFILE WORDS RESULTS_DIR...\n");
    return 2;
  }
  try {
    dstune::bench::record_table(argv[1], argv[2], argv[3], argv[4], {argv + 5, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
