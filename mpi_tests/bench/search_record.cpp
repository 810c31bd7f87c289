// Makes a recorded space for search_bench from a gridsearch's results:
//   search_record [--disturbed] TABLE.json SPACE.json PROFILE.json WORDS RESULTS_DIR...
// WORDS: how it was run and when. --disturbed: all runs and steps are kept, as they were.
// mpi_tests/bench/record_space.py does it all.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "search_table.hpp"

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool is_disturbed = !words.empty() && words.front() == "--disturbed";
  if (is_disturbed) words.erase(words.begin());
  if (words.size() < 5) {
    std::fprintf(stderr,
                 "usage: search_record [--disturbed] TABLE SPACE PROFILE WORDS RESULTS_DIR...\n");
    return 2;
  }
  try {
    dstune::bench::record_table(words[0], words[1], words[2], words[3],
                                {words.begin() + 4, words.end()}, is_disturbed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
