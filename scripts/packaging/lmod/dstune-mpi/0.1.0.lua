-- Lmod's module of an installed dstune-mpi, for installations that neither Spack nor EasyBuild made.
-- In PREFIX/share/modulefiles/dstune-mpi/ it finds PREFIX itself. Elsewhere fill in this line:
local prefix = myFileName():match("^(.+)/share/modulefiles/") or "/opt/dstune-mpi/0.1.0"
-- The module of the MPI that dstune-mpi was built with, with its version if there are several. "" loads none.
local mpi = "openmpi"

whatis("Name: dstune-mpi")
whatis("Version: 0.1.0")
whatis("Category: tools, deep learning")
whatis("Description: finds the fastest DeepSpeed (ZeRO) training configuration, in one MPI job")

help([[
dstune-mpi finds the fastest DeepSpeed (ZeRO) configuration for a model on the machine it runs on.

  dstune-mpi plan space.json              what fits, and how fast it is; needs no MPI job
  mpirun -np 8 dstune-mpi space.json      tunes; the answer is in autotuning_results/

Manual: man dstune-mpi, man dstune-space. Examples: ]] .. pathJoin(prefix, "share/dstune/examples") .. "\n")

if mpi ~= "" then
  depends_on(mpi)
end

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
-- An empty member at its end keeps the system's manuals.
append_path("MANPATH", "")
prepend_path("MANPATH", pathJoin(prefix, "share/man"))

-- Completions. Without a value the two folders behind ours are searched; with one, only what it names.
append_path("XDG_DATA_DIRS", "/usr/local/share")
append_path("XDG_DATA_DIRS", "/usr/share")
prepend_path("XDG_DATA_DIRS", pathJoin(prefix, "share"))
-- A zsh that Lmod was set up in exports its FPATH.
if os.getenv("FPATH") then
  prepend_path("FPATH", pathJoin(prefix, "share/zsh/site-functions"))
end
