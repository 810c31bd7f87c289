# dstune_unit_test(name LIBRARIES dstune_space... [SOURCES a_test.cpp...] [WITH ../other.cpp...])
#   One process without MPI; CTest name `unit.<name>`. Its sources are those of the folder that no
#   program above it names with SOURCES, and what WITH adds from elsewhere.
# dstune_device_test(name ...)
#   Likewise `device.<name>`: needs a GPU, and is skipped where none answers. ARGUMENTS go to the
#   program.
# dstune_mpi_test(name LIBRARIES ... [SOURCES ...] [WITH ...] [RANKS 1 2 3 4] [LONG_RANKS 1 4] [TIMEOUT 180] [LABELS parallel])
#   GoogleTest under mpirun once for each rank count, oversubscribed where cores are fewer; CTest names
#   `parallel.<name>.np3`. Uses support/mpi_main.cpp: a failure on one rank fails all, a watchdog names
#   a hung test, and exit 77 (every test skipped) shows as skipped.

# What takes long has the label `long`: LONG_RANKS names such rank counts, LONG makes the whole
# program so. The target long_tests builds the programs of which no other test is left, which `all`
# leaves out. `scripts/test.sh --long` builds and runs them.
#
# The target device_tests builds what has the label `device`.

# Sanitized programs are several times slower.
if(DSTUNE_SANITIZE)
  set(DSTUNE_TEST_SLOWDOWN 5)
else()
  set(DSTUNE_TEST_SLOWDOWN 1)
endif()

# dstune_sources(out [source...]): the sources, or those of the folder that no call before it names.
function(dstune_sources out)
  set(sources ${ARGN})
  if(sources)
    set_property(DIRECTORY APPEND PROPERTY DSTUNE_NAMED_SOURCES ${sources})
  else()
    file(GLOB sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
    get_property(named DIRECTORY PROPERTY DSTUNE_NAMED_SOURCES)
    list(REMOVE_ITEM sources "" ${named})
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

add_custom_target(device_tests)
add_custom_target(long_tests)

# dstune_long_programs(target...): built for long tests only.
function(dstune_long_programs)
  set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  add_dependencies(long_tests ${ARGN})
endfunction()

# dstune_long_tests(test...)
function(dstune_long_tests)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS long)
endfunction()

# dstune_test_program(target): what tests compute themselves is little, so that compiling them counts.
# FAST: what they compute counts.
function(dstune_test_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FAST" "" "")
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  if(NOT arg_FAST)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    # At -O1 g++ 12 sees copies out of bounds in std::string's operator+, too (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-array-bounds -Wno-stringop-overflow>)
    dstune_use_precompiled(${target} tests)
  endif()
endfunction()

function(dstune_unit_test name)
  dstune_process_test(unit ${name} ${ARGN})
endfunction()

function(dstune_device_test name)
  dstune_process_test(device ${name} ${ARGN})
endfunction()

function(dstune_process_test kind name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "LONG;FAST" "TIMEOUT" "SOURCES;WITH;LIBRARIES;ARGUMENTS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  math(EXPR timeout_s "${arg_TIMEOUT} * ${DSTUNE_TEST_SLOWDOWN}")
  set(target test_${kind}_${name})
  set(fast "")
  if(arg_FAST)
    set(fast FAST)
  endif()
  dstune_sources(sources ${arg_SOURCES})
  add_executable(${target} ${sources} ${arg_WITH})
  if(NOT arg_FAST)
    dstune_compile_joined(${target} 100000)
  endif()
  target_link_libraries(${target} PRIVATE dstune_flags ${arg_LIBRARIES} GTest::gtest GTest::gmock dstune_unit_main)
  dstune_test_program(${target} ${fast})
  add_test(NAME ${kind}.${name} COMMAND ${target} ${arg_ARGUMENTS})
  if(kind STREQUAL "device")
    add_dependencies(device_tests ${target})
  endif()
  set_tests_properties(${kind}.${name} PROPERTIES LABELS ${kind} TIMEOUT ${timeout_s} SKIP_RETURN_CODE 77)
  if(arg_LONG)
    dstune_long_programs(${target})
    dstune_long_tests(${kind}.${name})
  endif()
  # Leaks are looked for here only: MPI leaves some behind, in libraries it has unloaded, which no
  # suppression can name.
  if(DSTUNE_SANITIZE MATCHES "address")
    set_tests_properties(${kind}.${name} PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1:abort_on_error=1")
  endif()
endfunction()

# The words before a program that start it on N ranks, whatever the number of cores.
set(DSTUNE_MPI_FLAGS "" CACHE STRING "Further mpiexec flags for the tests")
function(dstune_mpi_command out ranks)
  separate_arguments(flags UNIX_COMMAND "${DSTUNE_MPI_FLAGS}")
  set(${out} ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} ${flags} PARENT_SCOPE)
endfunction()

# What mpirun needs as root, with more ranks than cores and in a bare environment. Its ranks write to
# a terminal of its own, which GoogleTest would colour.
set(DSTUNE_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
    GTEST_COLOR=no)

function(dstune_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LONG" "TIMEOUT" "SOURCES;WITH;LIBRARIES;RANKS;LONG_RANKS;LABELS")
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 3 4)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 180)
  endif()
  math(EXPR timeout_s "${arg_TIMEOUT} * ${DSTUNE_TEST_SLOWDOWN}")
  set(target test_parallel_${name})
  dstune_sources(sources ${arg_SOURCES})
  add_executable(${target} ${sources} ${arg_WITH})
  target_link_libraries(${target} PRIVATE dstune_flags ${arg_LIBRARIES} GTest::gtest GTest::gmock dstune_mpi_main)
  dstune_test_program(${target})
  if(arg_LONG)
    dstune_long_programs(${target})
    set(arg_LONG_RANKS ${arg_RANKS})
  endif()
  if("device" IN_LIST arg_LABELS)
    add_dependencies(device_tests ${target})
  endif()
  foreach(ranks ${arg_RANKS})
    dstune_mpi_command(mpi ${ranks})
    add_test(NAME parallel.${name}.np${ranks} COMMAND ${mpi} $<TARGET_FILE:${target}>)
    set(long "")
    if(ranks IN_LIST arg_LONG_RANKS)
      set(long ";long")
    endif()
    set_tests_properties(parallel.${name}.np${ranks} PROPERTIES
      LABELS "parallel;np${ranks};${arg_LABELS}${long}" PROCESSORS ${ranks} TIMEOUT ${timeout_s}
      SKIP_RETURN_CODE 77 ENVIRONMENT "${DSTUNE_MPI_ENVIRONMENT}")
  endforeach()
endfunction()
