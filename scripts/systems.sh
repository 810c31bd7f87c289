#!/usr/bin/env bash
# Tries this checkout on bare systems: what a release does before it goes out. It makes a root of each
# system with debootstrap, and runs in it what a user would run. Each try prints one line: system,
# compiler, MPI, what ran, result, seconds. As root, with a package registry; takes hours.
#
#   scripts/systems.sh [--systems A,B] [--steps A,B] [--folder FOLDER] [--jobs N] [--keep] [--list]
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
source "$(dirname -- "${BASH_SOURCE[0]}")/needs.sh"

# This machine's own archives, unless the variables name others.
debian=${DEBIAN_ARCHIVE:-$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep '/debian/*$' | head -n 1 || true)}
ubuntu=${UBUNTU_ARCHIVE:-$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep '/ubuntu/*$' | head -n 1 || true)}
certificates=/etc/ssl/certs/ca-certificates.crt
# system | suite | archive | components | a script of debootstrap that suits
systems=(
  "debian-12|bookworm|$debian|main|sid"
  "debian-13|trixie|$debian|main|sid"
  "debian-testing|testing|$debian|main|sid"
  "ubuntu-22.04|jammy|$ubuntu|main,universe|gutsy"
  "ubuntu-24.04|noble|$ubuntu|main,universe|gutsy"
)
all_steps=(quickstart tests user compilers mpich)
# The promised ones; a system may have others, which are not tried.
compilers=(g++-12 g++-13 g++-14 g++-15 clang-16 clang-17 clang-18 clang-19)

usage() {
  sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
  exit 2
}

chosen_systems="" chosen_steps="" folder=$checkout/build/systems jobs=$(build_jobs) keep=no list=no
while (($# > 0)); do
  case $1 in
    --systems | --steps | --folder | --jobs) (($# > 1)) || usage ;;&
    --systems) chosen_systems=$2 && shift ;;
    --steps) chosen_steps=$2 && shift ;;
    --folder) folder=$2 && shift ;;
    --jobs) jobs=$2 && shift ;;
    --keep) keep=yes ;;
    --list) list=yes ;;
    *) usage ;;
  esac
  shift
done

# chosen LIST NAME: is it in the list, or the list empty?
chosen() { [[ -z $1 || ,$1, == *",$2,"* ]]; }

# known WHAT LIST NAME...: ends where the list has a name that nobody knows.
known() {
  local what=$1 names name
  IFS=, read -ra names <<<"$2"
  shift 2
  for name in "${names[@]}"; do
    if [[ " $* " != *" $name "* ]]; then
      say "'$name' is no $what; there are $*"
      exit 2
    fi
  done
}
known system "$chosen_systems" "${systems[@]%%|*}"
known step "$chosen_steps" "${all_steps[@]}"
if [[ $list == yes ]]; then
  echo "systems: ${systems[*]%%|*}"
  echo "steps: ${all_steps[*]}"
  exit 0
fi
if [[ $(id -u) -ne 0 ]]; then
  say "Roots are made by root: run this as root"
  exit 1
fi
for program in debootstrap unshare chroot; do
  if ! command -v "$program" >/dev/null; then
    say "$program is missing (Debian and Ubuntu: packages debootstrap, util-linux, coreutils)"
    exit 1
  fi
done
mkdir -p "$folder"
folder=$(realpath -- "$folder")
table=$folder/table.txt
: >"$table"
failed=0

# make_root ROW: the bare system, in $root.
make_root() {
  local name suite archive components script keyring=()
  IFS='|' read -r name suite archive components script <<<"$1"
  [[ -n $archive ]] || { say "$name: no archive is known: set ${name%%-*}'s, DEBIAN_ARCHIVE or UBUNTU_ARCHIVE"; return 1; }
  # A system does not know the other's keys: then the archive's certificate speaks for it.
  if [[ $archive == "$ubuntu" && ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]]; then
    keyring=(--no-check-gpg)
  elif [[ $archive == "$debian" && ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
    say "$name needs /usr/share/keyrings/debian-archive-keyring.gpg (package debian-archive-keyring)"
    return 1
  fi
  rm -rf "$root"
  debootstrap --variant=minbase "${keyring[@]}" "--components=$components" "$suite" "$root" "$archive" \
    "/usr/share/debootstrap/scripts/$script" || return
  # A bare system has no certificates; from here on its own keys are there. Users have its updates.
  echo "deb ${archive/https:/http:} $suite ${components//,/ }" >"$root/etc/apt/sources.list"
  [[ $suite == testing ]] ||
    echo "deb ${archive/https:/http:} $suite-updates ${components//,/ }" >>"$root/etc/apt/sources.list"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod +x "$root/usr/sbin/policy-rc.d"
  printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
  within "useradd --create-home tester && apt-get -q update" || return
  # This system's own CMake is too old.
  if [[ $name == ubuntu-22.04 ]]; then
    within "apt-get install -y -q --no-install-recommends python3-pip && pip3 install 'cmake>=3.25,<4'" || return
  fi
  touch "$root/made"
}

# within WORDS: a shell command in the root, in namespaces of its own.
within() {
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  # Whom this machine trusts: a bare system knows no certificates, nor those of a site's own.
  [[ ! -e $certificates ]] || cp -L "$certificates" "$root/etc/certificates.crt"
  # shellcheck disable=SC2016  # for the shell inside
  unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev" && mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"
    mount --rbind /sys "$0/sys" && mount --make-rslave "$0/sys"
    exec chroot "$0" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
      PIP_CERT=/etc/certificates.crt SSL_CERT_FILE=/etc/certificates.crt DEBIAN_FRONTEND=noninteractive sh -c "$1"' "$root" "$1"
}

# copy_checkout: what git would commit, and what it does not ignore, of this checkout.
copy_checkout() {
  rm -rf "$root/home/tester/dstune-mpi"
  mkdir -p "$root/home/tester/dstune-mpi"
  git -C "$checkout" ls-files -z --cached --others --exclude-standard |
    (cd "$checkout" && while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done) |
    tar -C "$checkout" --null --files-from=- -cf - | tar -C "$root/home/tester/dstune-mpi" --no-same-owner -xf -
}

# attempt COMPILER WHAT WORDS: runs the words in the checkout of the root, and prints the line.
attempt() {
  local compiler=$1 what=$2 words=$3 log started took result=ok version mpi
  log=$folder/$name.${what// /-}.$compiler.log
  started=$SECONDS
  within "cd /home/tester/dstune-mpi && { $words
    }" >"$log" 2>&1 || result="FAILED ($(basename "$log"))"
  took=$((SECONDS - started))
  # As setup.sh chooses it on Ubuntu 22.04.
  [[ $name != ubuntu-22.04 || $compiler != g++ ]] || compiler=g++-12
  version=$(within "$compiler -dumpfullversion 2>/dev/null || $compiler -dumpversion" 2>/dev/null) || version=none
  mpi=$(within "mpirun --version" 2>/dev/null | sed -n '1s/[^0-9]*//p') || mpi=""
  [[ $what != *MPICH* ]] || mpi=MPICH
  [[ $result == ok ]] || failed=1
  printf '%-15s %-9s %-8s %-8s %-28s %-6s %5d s\n' "$name" "$compiler" "$version" "${mpi:--}" "$what" "$result" "$took" |
    tee -a "$table"
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
    printf '%-15s the system can not be made (%s)\n' "$name" "$name.root.log" | tee -a "$table"
    failed=1
    continue
  fi
  copy_checkout
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
