# Run by cpack for the archive of the sources: copies what git tracks, as it stands in the checkout.
# Sources from an archive have no git: there all but the build folder counts.
find_program(git NAMES git)
set(listed 1)
if(git AND EXISTS "${DSTUNE_SOURCES}/.git")
  execute_process(COMMAND "${git}" -c core.quotePath=off ls-files
                  WORKING_DIRECTORY "${DSTUNE_SOURCES}"
                  OUTPUT_VARIABLE files RESULT_VARIABLE listed)
endif()
if(listed EQUAL 0)
  string(REGEX REPLACE "\n$" "" files "${files}")
  string(REPLACE "\n" ";" files "${files}")
else()
  file(GLOB_RECURSE files LIST_DIRECTORIES OFF RELATIVE "${DSTUNE_SOURCES}" "${DSTUNE_SOURCES}/*")
  file(RELATIVE_PATH build "${DSTUNE_SOURCES}" "${DSTUNE_BUILD}")
  list(FILTER files EXCLUDE REGEX "^(build|${build}|\\.git)/")
endif()
foreach(file IN LISTS files)
  if(EXISTS "${DSTUNE_SOURCES}/${file}")
    cmake_path(GET file PARENT_PATH folder)
    file(COPY "${DSTUNE_SOURCES}/${file}" DESTINATION "${CMAKE_INSTALL_PREFIX}/${folder}")
  endif()
endforeach()
