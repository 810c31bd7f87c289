// Makes a recorded space for search_bench from a gridsearch's results:
//   search_record [--quiet N] TABLE.json SPACE.json PROFILE.json WORDS RESULTS_DIR...
// WORDS: how it was run and when. --quiet: the last N searches ran without a load, the others
// beside one; of the latter all runs and steps are kept, as they were.
// mpi_tests/bench/record_space.py does it all.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "search_table.hpp"

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::size_t num_quiet = 0;
  if (words.size() > 1 && words.front() == "--quiet") {
    num_quiet = std::strtoul(words[1].c_str(), nullptr, 10);
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() < 5 + num_quiet) {
    std::fprintf(stderr,
                 "usage: search_record [--quiet N] TABLE SPACE PROFILE WORDS RESULTS_DIR...\n");
    return 2;
  }
  try {
    const auto quiet = words.end() - static_cast<std::ptrdiff_t>(num_quiet);
    dstune::bench::record_table(words[0], words[1], words[2], words[3], {words.begin() + 4, quiet},
                                {quiet, words.end()});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
