#!/usr/bin/env bash
# Tries this checkout on bare systems: what a release does before it goes out. It makes a root of each
# system with debootstrap, and runs in it what a user would run. Each try prints one line: system,
# compiler, MPI, what ran, result, seconds. As root, with a package registry; takes hours.
#
#   scripts/tools/systems.sh [--systems A,B] [--steps A,B] [--folder FOLDER] [--jobs N] [--keep] [--list]
#
# --systems  debian-12, debian-13, debian-testing, ubuntu-22.04, ubuntu-24.04 (default: all)
# --steps    in this order (default: all):
#   quickstart  scripts/quickstart.sh as root
#   tests       scripts/test.sh as root: the short tests
#   user        both as a user, with an empty HOME; the build is root's, results are the user's own
#   compilers   with every other compiler that the system has: the program without CUDA, the unit tests
#   mpich       the program with MPICH on two ranks, where the system's own MPI is Open MPI
# --folder   where roots and logs are (default build/systems); a root that is there is used again
# DEBIAN_ARCHIVE and UBUNTU_ARCHIVE name the package archives; each has to be named where this machine
# is not of its kind.
# --keep     does not delete a root after its steps
# --list     prints the systems and steps, and tries nothing
#
# Everything of a try runs in namespaces of its own: mounts and processes end with it. The exit code
# is 0 where all went well, else 1. The lines are also in FOLDER/table.txt, what ran in FOLDER/SYSTEM.*.log.
set -euo pipefail
# shellcheck source=scripts/needs.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../needs.sh"
# shellcheck source=scripts/tools/roots.sh
source "$checkout/scripts/tools/roots.sh"
# shellcheck source=scripts/tools/tries.sh
source "$checkout/scripts/tools/tries.sh"

all_steps=(quickstart tests user compilers mpich)
# The promised ones; a system may have others, which are not tried.
compilers=(g++-12 g++-13 g++-14 g++-15 clang-16 clang-17 clang-18 clang-19)

folder=$checkout/build/systems jobs=$(build_jobs)
begin_tries "$@"

# attempt COMPILER WHAT WORDS: runs the words in the checkout of the root, and prints the line.
attempt() {
  local compiler=$1 what=$2 version mpi
  timed "$what.$compiler" "cd /home/tester/dstune-mpi && { $3
    }"
  # As setup.sh chooses it on Ubuntu 22.04.
  [[ $name != ubuntu-22.04 || $compiler != g++ ]] || compiler=g++-12
  version=$(within "$compiler -dumpfullversion 2>/dev/null || $compiler -dumpversion" 2>/dev/null) || version=none
  mpi=$(within "mpirun --version" 2>/dev/null | sed -n '1s/[^0-9]*//p') || mpi=""
  [[ $what != *MPICH* ]] || mpi=MPICH
  told '%-15s %-9s %-8s %-8s %-28s %-6s %5d s\n' "$name" "$compiler" "$version" "${mpi:--}" "$what" "$result" "$took"
}

quickstart="rm -rf autotuning_results autotuning_exps && RANKS=2 scripts/quickstart.sh"
tests="scripts/test.sh"
# as_user WORDS: by a user whose HOME has nothing in it.
as_user() { echo "chown -R tester: . && setpriv --reuid=tester --regid=tester --clear-groups env HOME=/home/tester sh -c '$1'"; }

# build_words FOLDER ARGUMENTS: the program without CUDA and the unit tests, which then run.
build_words() {
  echo "cmake --preset release -B $1 --log-level=WARNING -DDSTUNE_CUDA=OFF $2 &&
    cmake --build $1 --parallel $jobs --target dstune-mpi \
      \$(ninja -C $1 -t targets all | sed -n '/^test_unit_[^/]*: phony/s/:.*//p') -- -k 0 &&
    ctest --test-dir $1 --output-on-failure --parallel $jobs -L '^unit\$' -LE 'long|fuzz'"
}

try_compilers() {
  local compiler major cxx cc packages own
  own=$(within "g++ -dumpversion" | cut -d. -f1) || own=none
  [[ $name != ubuntu-22.04 ]] || own=12
  for compiler in "${compilers[@]}"; do
    major=${compiler##*-}
    [[ $compiler != "g++-$own" ]] || continue
    packages=$compiler cxx=g++-$major cc=gcc-$major
    [[ $compiler != clang-* ]] || packages="clang-$major libomp-$major-dev" cxx=clang++-$major cc=clang-$major
    # Not every system has every compiler; a libomp-N-dev may have another compiler's place.
    within "apt-cache policy $compiler | grep -q 'Candidate: [^(]'" 2>/dev/null || continue
    attempt "$cxx" "program, unit tests" "apt-get install -y -q --no-install-recommends $packages &&
      $(build_words "build/$compiler" "-DCMAKE_CXX_COMPILER=$cxx -DCMAKE_C_COMPILER=$cc") && rm -rf build/$compiler"
  done
}

for row in "${systems[@]}"; do
  name=${row%%|*}
  root=$folder/$name
  chosen "$chosen_systems" "$name" || continue
  if [[ ! -e $root/made ]] && ! make_root "$row" >"$folder/$name.root.log" 2>&1; then
    told '%-15s the system can not be made (%s)\n' "$name" "$name.root.log"
    failed=1
    continue
  fi
  copy_checkout "$root/home/tester/dstune-mpi"
  ! chosen "$chosen_steps" quickstart || attempt g++ "quickstart as root" "$quickstart"
  ! chosen "$chosen_steps" tests || attempt g++ "short tests as root" "$tests"
  # The steps below install nothing; where all is there this does nothing.
  within "cd /home/tester/dstune-mpi && scripts/setup.sh" >"$folder/$name.setup.log" 2>&1 || true
  if chosen "$chosen_steps" user; then
    attempt g++ "quickstart as a user" "$(as_user "$quickstart")"
    attempt g++ "short tests as a user" "$(as_user "$tests")"
  fi
  chown -R root: "$root/home/tester/dstune-mpi"
  ! chosen "$chosen_steps" compilers || try_compilers
  if chosen "$chosen_steps" mpich; then
    attempt g++ "program with MPICH" "apt-get install -y -q --no-install-recommends mpich libmpich-dev &&
      cmake --preset release -B build/mpich --log-level=WARNING -DDSTUNE_CUDA=OFF -DMPI_C_COMPILER=mpicc.mpich \
        -DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich &&
      cmake --build build/mpich --parallel $jobs --target dstune-mpi && rm -rf autotuning_results autotuning_exps &&
      mpiexec.mpich -n 2 build/mpich/dstune-mpi scripts/spaces/quickstart.json"
  fi
  [[ $keep == yes ]] || rm -rf --one-file-system "$root"
done
exit "$failed"
