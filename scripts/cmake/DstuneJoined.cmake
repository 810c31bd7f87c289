# What makes a clean build short: files that are compiled together, and headers that are compiled
# once. A Debug build does without: it says which #include is missing, and suits compiler caches. So do
# other compilers than g++, which want each macro as it was in a precompiled header.
set(joined ON)
set(precompiled OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(joined OFF)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(precompiled ON)
endif()
option(DSTUNE_JOINED_UNITS "Compile several files of a library in one go" ${joined})
option(DSTUNE_PRECOMPILED_HEADERS "Compile the headers of others once" ${precompiled})
# So much source text makes a unit. A third of it would take a fifth more processor time, and less after an
# edit of one file.
set(DSTUNE_UNIT_BYTES 64000 CACHE STRING "Source text that is compiled in one go")
mark_as_advanced(DSTUNE_UNIT_BYTES)

# dstune_compile_joined(target [bytes]): neighbours among its .cpp files make units of about so much
# text. Names in unnamed namespaces must differ within a library: the test `names` looks for it.
function(dstune_compile_joined target)
  if(NOT DSTUNE_JOINED_UNITS)
    return()
  endif()
  set(limit ${DSTUNE_UNIT_BYTES})
  if(ARGC GREATER 1)
    set(limit ${ARGV1})
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(unit 0)
  set(bytes 0)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}")
    if(NOT source MATCHES "\\.cpp$" OR NOT EXISTS "${source}")
      continue()
    endif()
    file(SIZE "${source}" size)
    math(EXPR bytes "${bytes} + ${size}")
    if(bytes GREATER limit AND NOT bytes EQUAL size)
      math(EXPR unit "${unit} + 1")
      set(bytes ${size})
    endif()
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${target}_${unit})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# dstune_precompiled(name LIBRARIES target... HEADERS header...): headers that libraries share. These
# compile with the same flags; LIBRARIES brings what changes them.
function(dstune_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;HEADERS")
  if(NOT DSTUNE_PRECOMPILED_HEADERS)
    return()
  endif()
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/precompiled_${name}.cpp")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "// The headers are all.\n" @ONLY)
  add_library(dstune_precompiled_${name} OBJECT "${unit}")
  target_link_libraries(dstune_precompiled_${name} PRIVATE dstune_flags ${arg_LIBRARIES})
  target_precompile_headers(dstune_precompiled_${name} PRIVATE ${arg_HEADERS})
  set_target_properties(dstune_precompiled_${name} PROPERTIES DSTUNE_LIBRARIES "${arg_LIBRARIES}")
endfunction()

# dstune_use_precompiled(target name): its C++ sources begin with these headers.
function(dstune_use_precompiled target name)
  if(DSTUNE_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM dstune_precompiled_${name})
    # What the flags of the precompiled headers depend on.
    get_target_property(libraries dstune_precompiled_${name} DSTUNE_LIBRARIES)
    target_link_libraries(${target} PRIVATE ${libraries})
  endif()
endfunction()

# dstune_seldom(target [-O1]): code that is no loop of a search or a step. It compiles sooner with less optimisation.
function(dstune_seldom target)
  set(level -O2)
  if(ARGC GREATER 1)
    set(level ${ARGV1})
  endif()
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${level}>)
  if(level STREQUAL "-O1" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # There g++ 12 sees copies out of bounds in std::string's operator+, too (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-stringop-overflow>)
  endif()
endfunction()
