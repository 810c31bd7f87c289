# Run by cpack before it writes the Debian package, for all that Debian has otherwise than
# `cmake --install`.
set(share "${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share")
set(doc "${share}/doc/dstune-mpi")
if(NOT DSTUNE_DEBIAN_VERSION STREQUAL CPACK_PACKAGE_VERSION)
  message(FATAL_ERROR "${CMAKE_CURRENT_LIST_DIR}/changelog begins with version "
    "${DSTUNE_DEBIAN_VERSION}, not ${CPACK_PACKAGE_VERSION}")
endif()

# The licence stands in copyright, and in a file that Debian has.
file(REMOVE "${doc}/LICENSE")
file(COPY "${CMAKE_CURRENT_LIST_DIR}/copyright" DESTINATION "${doc}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/changelog" "${doc}/changelog.Debian" COPYONLY)
file(RENAME "${doc}/docs/changelog.md" "${doc}/changelog")
file(COPY "${CMAKE_CURRENT_LIST_DIR}/lintian-overrides" DESTINATION "${share}/lintian/overrides")
file(RENAME "${share}/lintian/overrides/lintian-overrides" "${share}/lintian/overrides/dstune-mpi")
# Packages may not write where the administrator's functions for zsh are.
if(EXISTS "${share}/zsh/site-functions")
  file(RENAME "${share}/zsh/site-functions" "${share}/zsh/vendor-completions")
endif()
file(GLOB pages "${share}/man/man*/*")
foreach(file IN LISTS pages ITEMS "${doc}/changelog" "${doc}/changelog.Debian")
  execute_process(COMMAND gzip -9n "${file}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
# A link to the examples, where users of Debian look for them.
file(CREATE_LINK ../../dstune/examples "${doc}/examples" SYMBOLIC)

# CMake's own stripping leaves the compiler's name.
file(GLOB programs "${share}/../bin/*" "${share}/../${DSTUNE_LIBRARIES}/*.so")
foreach(file IN LISTS programs)
  execute_process(COMMAND strip --remove-section=.comment --remove-section=.note "${file}"
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
