# The verb `pack` of gpu-node.sh, which sources this. `rehearse` takes the rules from here.
# shellcheck shell=bash disable=SC2154  # folder, checkout, needs, say: the caller's
#
# What is packed follows from the packages' own words: their dependencies less those that a compiler
# brings, then of libraries those that others ask for by name (readelf), and of plug-ins of MPI those
# whose libraries are all there. Fabrics between nodes are left out: one node has no use for them.

# Names of packages and of libraries.
fabrics='^(lib(fabric|uc[mpstx]|psm|ibverbs|rdmacm|infinipath|nl-)|ibverbs)'

# closure PACKAGE...: with all that they depend on, one name a line, as on a machine that has nothing.
closure() {
  apt-get -s -qq -o Dir::State::status=/dev/null -o APT::Install-Recommends=false \
    -o Debug::NoLocking=true install "$@" | sed -n 's/^Inst \([^ ]*\) .*/\1/p' | sort -u
}

wanted_packages() {
  local need package
  for need in "${needs[@]}"; do
    IFS='|' read -r _ _ package _ <<<"$need"
    case $package in
      g++ | cmake | ninja-build) ;; # the node's own, unless they are asked for
      *) echo "$package" ;;
    esac
  done
}

needed_by() { readelf -d "$@" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u; }

# Every system has these. A bare one has no OpenMP.
is_everywhere() {
  [[ $1 =~ ^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|quadmath|z)\.so\..*)$ ]]
}

# keep PATH...: from the unpacked packages (the folder this is in) to what is packed, with what a link leads to.
keep() {
  local path paths=() target
  for path in "$@"; do
    [[ ! -e $path && ! -L $path ]] || paths+=("$path")
  done
  ((${#paths[@]} > 0)) || return 0
  cp -a --parents -t "$kept" -- "${paths[@]}"
  for path in "${paths[@]}"; do
    # What does not exist is an alternative of Debian's, which only an installation makes.
    while [[ -L $path && -e $path ]]; do
      target=$(readlink "$path")
      [[ $target != /* ]] || break
      path=$(realpath -ms --relative-to=. "$(dirname "$path")/$target")
      cp -a --parents -t "$kept" -- "$path"
    done
  done
}

# Where each library is among the packages, for those that the linker looks for in one folder.
declare -A library_of=()
missing=()
index_libraries() {
  local path
  shopt -s nullglob
  for path in usr/lib/*-linux-gnu/*.so*; do
    [[ ${path##*/} =~ $fabrics ]] || is_everywhere "${path##*/}" || library_of[${path##*/}]=$path
  done
}

# keep_with_libraries FILE...: and what they need, and what that needs. Names what is nowhere.
keep_with_libraries() {
  local queue=("$@") names file library
  while ((${#queue[@]} > 0)); do
    keep "${queue[@]}"
    mapfile -t names < <(needed_by "${queue[@]}")
    queue=()
    for file in "${names[@]}"; do
      library=${library_of[$file]:-}
      if [[ -n $library && ! -e $kept/$library ]]; then
        queue+=("$library")
      elif [[ -z $library ]] && ! is_everywhere "$file"; then
        missing+=("$file")
      fi
    done
  done
}

# Whether all libraries of a plug-in, and theirs, are among the packages.
declare -A complete=()
is_complete() {
  local file library
  for file in $(needed_by "$1"); do
    is_everywhere "$file" && continue
    library=${library_of[$file]:-}
    [[ -n $library ]] || return 1
    [[ -n ${complete[$library]:-} ]] || is_complete "$library" || return 1
    complete[$library]=yes
  done
}

keep_plugins() {
  local plugin
  for plugin in "$@"; do
    if is_complete "$plugin"; then keep_with_libraries "$plugin"; fi
  done
}

# Boost's headers are kept by folder: those that ours reach, whatever the compiler.
keep_boost() {
  local name
  keep usr/include/boost/*.hpp
  for name in $(printf '#include <boost/%s.hpp>\n' program_options math/distributions/students_t |
    g++ -std=c++20 -M -x c++ -I usr/include - |
    tr ' ' '\n' | sed -n 's|^usr/include/boost/\([^/]*\)/.*|\1|p' | sort -u); do
    keep "usr/include/boost/$name"
  done
}

# Puts what a run needs of MPI and libraries into $kept. Ends where something is missing, or does
# not start.
keep_what_runs_need() {
  local name path
  keep usr/share/{openmpi,pmix,prte} etc/openmpi* etc/pmix* etc/prte*
  keep_with_libraries usr/lib/*-linux-gnu/lib{boost_program_options,dnnl,OpenCL,fmt,spdlog,yaml-cpp}.so \
    usr/lib/*-linux-gnu/openmpi/lib/libmpi.so usr/bin/{orterun,orted,prterun,prted}
  keep_plugins usr/lib/*-linux-gnu/openmpi/lib/openmpi3/*.so usr/lib/*-linux-gnu/pmix2/lib/pmix/*.so
  if ((${#missing[@]} > 0)); then
    say "no package has ${missing[*]}"
    exit 1
  fi
  # Links that an installation would make.
  for name in orterun prterun; do
    [[ ! -e $kept/usr/bin/$name ]] || { ln -sf "$name" "$kept/usr/bin/mpirun" && ln -sf "$name" "$kept/usr/bin/mpiexec"; }
  done
  # As `run` will do it.
  set_mpi_environment
  path=$(echo "$kept"/usr/lib/*-linux-gnu)
  if ! env LD_LIBRARY_PATH="$path" OPAL_DESTDIR="$kept" PMIX_DESTDIR="$kept" PRTE_DESTDIR="$kept" \
    OMPI_MCA_plm=isolated "$kept/usr/bin/mpirun" -np 2 true; then
    say "what is packed of MPI does not start"
    exit 1
  fi
}

pack() {
  local work names path deb program
  for program in apt-get dpkg readelf g++ tar gzip; do
    command -v "$program" >/dev/null || { say "pack needs $program"; exit 1; }
  done
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work'" EXIT
  kept=$work/kept
  mkdir -p "$work/debs" "$work/root" "$kept" "$folder"

  mapfile -t names < <(wanted_packages)
  names+=("$@")
  closure "${names[@]}" >"$work/all"
  if [[ ! -s $work/all ]]; then
    say "apt-get knows not all of these packages (apt-get update first): ${names[*]}"
    exit 1
  fi
  closure g++ gfortran >"$work/compiler"
  mapfile -t names < <({ comm -23 "$work/all" "$work/compiler" && echo libgomp1; } | grep -Ev "$fabrics")
  say "Downloading ${#names[@]} packages"
  (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "${names[@]}")
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done

  cd "$work/root" || exit
  index_libraries
  keep_boost
  for path in usr/include/*; do
    [[ $path == usr/include/boost ]] || keep "$path"
  done
  keep usr/share/{eigen3,cmake,cmake-*,nlohmann_json,pkgconfig} usr/lib/cmake
  keep usr/lib/*-linux-gnu/cmake usr/lib/*-linux-gnu/openmpi/include
  keep usr/lib/*-linux-gnu/lib{gtest,gmock,benchmark}*.a
  keep_with_libraries usr/lib/*-linux-gnu/lib{benchmark,benchmark_main}.so usr/bin/{cmake,ctest,ninja}
  keep_what_runs_need
  (cd "$work/debs" && printf '%s\n' *.deb) >"$kept/packages.txt"
  tar -C "$kept" -cf - . | gzip -9 >"$folder/packages.tar.gz"
  say "$folder/packages.tar.gz: $(du -h "$folder/packages.tar.gz" | cut -f1), unpacked $(du -sh "$kept" | cut -f1)"
}

[[ $verb != pack ]] || pack "$@"
