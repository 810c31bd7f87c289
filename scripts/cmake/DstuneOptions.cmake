# Build options and the flags of our own code. Nothing here touches code that is not ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()
# The binary stands at the root of its build folder: build/release/dstune-mpi.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

set(DSTUNE_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (where a toolkit is found), ON, OFF")
set_property(CACHE DSTUNE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DSTUNE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them")
option(DSTUNE_WERROR "Warnings of our own code are errors (the preset ci)" OFF)
option(DSTUNE_FUZZ "Build the fuzzers of mpi_tests/fuzz; needs clang with libFuzzer" OFF)

# The program is a shared library, too (libdstune-mpi.so), which Python can load. Within it nothing is
# replaced from outside, so functions are inlined as in an executable.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Programs begin with the precompiled headers of the libraries.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)

add_library(dstune_flags INTERFACE)
target_include_directories(dstune_flags INTERFACE "${PROJECT_SOURCE_DIR}/include")
target_compile_options(dstune_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # g++ 12 sees overlapping copies in std::string's operator+ (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  # std::stable_sort of g++ 12's library calls what that deprecates, and clang tells.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-deprecated-declarations>
  # Those of the compiler behind nvcc, but for what nvcc generates.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion,-Wno-sign-conversion>)
# No file of the program names a folder of this machine. Debug information does, for debuggers;
# packages strip it.
target_compile_options(dstune_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_BINARY_DIR}/=build/>")
# A compiler that is newer than those we know warns of what they did not: that is no reason not to build.
if(DSTUNE_WERROR)
  set(DSTUNE_C_WARNINGS_ARE_ERRORS -Werror)
  target_compile_options(dstune_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
# libmpi alone: the deprecated C++ bindings are neither included nor linked.
target_compile_definitions(dstune_flags INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
if(DSTUNE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "DSTUNE_FUZZ=ON needs clang++ (and libFuzzer): use the preset fuzz")
  endif()
  # Counters for the fuzzer in our code; a finding of a sanitizer ends the run.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()
if(DSTUNE_SANITIZE)
  add_compile_options(-fsanitize=${DSTUNE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DSTUNE_SANITIZE})
  # The thread sanitizer knows no fences. Ours orders what a process reads of other processes' memory,
  # which it does not see either.
  if(DSTUNE_SANITIZE MATCHES "thread")
    target_compile_options(dstune_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  # With sanitizers g++ 12 reports maybe-uninitialized inside the standard library.
  target_compile_options(dstune_flags INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-error=maybe-uninitialized>)
endif()
