#!/usr/bin/env bash
# Checks all C and C++ sources with the newest clang that this system's packages have: what another
# compiler refuses is found before a user finds it; its warnings are shown, and fail nothing. Where clang is
# missing it is installed (as root, or where sudo asks for no password).
#   scripts/tools/check_syntax.sh [check_syntax.py's arguments]
# The exit code is 0 where all is right, 1 where a source is wrong, 77 where no clang can be had.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../setup.sh"

# The version that CLANG names is taken instead: CLANG=17.
oldest=16

candidates() {
  {
    apt-cache search --names-only '^clang-[0-9]+$' 2>/dev/null || true
    compgen -c clang++- || true
  } | sed -n 's/^clang\(++\)\{0,1\}-\([0-9][0-9]*\)\( .*\)\{0,1\}$/\2/p' | sort -nu
}

newest=${CLANG:-$(candidates | tail -n 1)}
if [[ -z ${CLANG:-} && ${newest:-0} -lt $oldest ]] && command -v apt-get >/dev/null && can_become_root; then
  "${become_root[@]}" apt-get -q update >&2 || true
  newest=$(candidates | tail -n 1)
fi
if [[ ${newest:-0} -lt $oldest ]]; then
  say "No clang $oldest or newer can be had: the sources are not checked by another compiler"
  exit 77
fi

# Its OpenMP has a header of its own.
has_clang() {
  command -v "clang++-$newest" >/dev/null &&
    printf '#include <omp.h>\n' | "clang++-$newest" -fopenmp -fsyntax-only -x c++ - 2>/dev/null
}
if ! has_clang && command -v apt-get >/dev/null && can_become_root; then
  missing_packages=("clang-$newest" "libomp-$newest-dev")
  install_missing || say "apt-get did not succeed"
  hash -r
fi
if ! has_clang; then
  say "clang $newest can not be installed: the sources are not checked by another compiler"
  exit 77
fi

# Long units: a header that many sources share is read once. Each header by itself is g++'s to check.
build=$checkout/build/syntax
cd "$checkout"
say "Checking the sources with clang $newest"
cmake --preset release -B "$build" --fresh --log-level=ERROR -DDSTUNE_UNIT_BYTES=1000000 \
  "-DCMAKE_C_COMPILER=clang-$newest" "-DCMAKE_CXX_COMPILER=clang++-$newest" >/dev/null
exec scripts/tools/check_syntax.py "$build" --without '/header_self_containment\.dir/' "$@"
