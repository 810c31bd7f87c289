#include "become_python.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
  return dstune::run_program(argc, argv, dstune::become_python_where_asked(argc, argv));
}
