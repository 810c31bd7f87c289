# The folders of an installation: those of GNU, and a private one for libraries that the program
# opens.
include(GNUInstallDirs)
set(DSTUNE_LIBRARIES "${CMAKE_INSTALL_LIBDIR}/dstune-mpi")
set(DSTUNE_DATA "${CMAKE_INSTALL_DATADIR}/dstune")
# DSTUNE_LIBRARY_FOLDER: from the program's folder to them, so that an installation may be moved.
cmake_path(SET DSTUNE_LIBRARY_FOLDER NORMALIZE "${CMAKE_INSTALL_FULL_LIBDIR}/dstune-mpi")
cmake_path(RELATIVE_PATH DSTUNE_LIBRARY_FOLDER BASE_DIRECTORY "${CMAKE_INSTALL_FULL_BINDIR}")
