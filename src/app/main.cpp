#include "become_python.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
  if (const auto exit_code = dstune::refuse_low_limits(argc, argv)) return *exit_code;
  return dstune::run_program(argc, argv, dstune::become_python_where_asked(argc, argv));
}
