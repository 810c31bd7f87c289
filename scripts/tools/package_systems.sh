#!/usr/bin/env bash
# Tries the packages of this checkout on bare systems. It builds the Debian package and the source archive
# on each system, and installs the package in a root of its own where nothing but the bare system is. It
# uses it there as a user would. Each try prints one line: system, step, result, seconds. As root, with a
# package registry; a build takes a quarter of an hour on two cores.
#
#   scripts/tools/package_systems.sh [--systems A,B] [--steps A,B] [--folder FOLDER] [--jobs N] [--keep] [--list]
#
# --systems  debian-12, debian-13, debian-testing, ubuntu-22.04, ubuntu-24.04 (default: 12, 13 and 24.04)
# --steps    in this order (default: all):
#   build       the preset `package`, and both packages by cpack
#   lintian     on the Debian package; an error or warning that is not overridden is a failure
#   install     apt-get installs the package, and what it needs, on the bare system
#   run         plan and mpirun by a user who has no name, without HOME and with one that is not there
#   man         both pages are found and shown
#   completion  bash, zsh and fish answer
#   plugin      the example of a plug-in is built from what is installed, and runs
#   slurm       a printed batch script is submitted to a Slurm in the root, and runs to its end
#   remove      after apt-get purge no file is left
#   lmod        the module over an installed prefix
#   spack       configures, builds and installs the archive with the recipe's arguments, then its tests
#   easybuild   eb finds all that the recipe asks for, and builds it with the system's own compiler
#   apptainer   runs the commands of both stages, each on a bare system
# --folder   where roots, packages and logs are (default build/packages); what is there is used again
# DEBIAN_ARCHIVE and UBUNTU_ARCHIVE name the package archives, as for systems.sh.
# --keep     does not delete the root that a package was built in
# --list     prints the systems and steps, and tries nothing
#
# The last four are tried on Debian 13 alone. The exit code is 0 where all went well, else 1. The lines are
# also in FOLDER/table.txt, what ran in FOLDER/SYSTEM.*.log, packages in FOLDER/SYSTEM.packages.
set -euo pipefail
# shellcheck source=scripts/needs.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../needs.sh"
# shellcheck source=scripts/tools/roots.sh
source "$checkout/scripts/tools/roots.sh"
# shellcheck source=scripts/tools/tries.sh
source "$checkout/scripts/tools/tries.sh"
# shellcheck source=scripts/tools/package_steps.sh
source "$checkout/scripts/tools/package_steps.sh"

all_steps=(build lintian install run man completion plugin slurm remove lmod spack easybuild apptainer)
folder=$checkout/build/packages jobs=$(build_jobs)
begin_tries "$@"
chosen_systems=${chosen_systems:-debian-12,debian-13,ubuntu-24.04}

# bare: the bare system in $root, of which FOLDER keeps a copy.
bare() {
  local copy=$folder/$name.bare.tar
  if [[ ! -e $copy ]]; then
    make_root "$row" >"$folder/$name.root.log" 2>&1 && tar -C "$root" --one-file-system -cf "$copy.part" . &&
      mv "$copy.part" "$copy"
    return
  fi
  rm -rf --one-file-system "$root"
  mkdir "$root" && tar -C "$root" -xpf "$copy"
}

# attempt STEP WHAT WORDS: runs the words in $root, and prints the line.
# shellcheck disable=SC2317  # package_steps.sh calls it
attempt() {
  timed "$1.$2" "set -e
$3"
  told '%-15s %-11s %-44s %-6s %5d s\n' "$name" "$1" "$2" "$result" "$took"
}

for row in "${systems[@]}"; do
  name=${row%%|*}
  chosen "$chosen_systems" "$name" || continue
  packages=$folder/$name.packages
  root=$folder/$name
  if [[ ! -e $root/made ]] && ! bare; then
    told '%-15s the system can not be made (%s)\n' "$name" "$name.root.log"
    failed=1
    continue
  fi
  for step in "${all_steps[@]}"; do
    ! chosen "$chosen_steps" "$step" || "try_$step"
  done
  rm -rf --one-file-system "$folder/$name.installed"
  [[ $keep == yes ]] || rm -rf --one-file-system "${folder:?}/$name"
done
exit "$failed"
