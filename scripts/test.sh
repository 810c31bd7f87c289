#!/usr/bin/env bash
# Installs what is missing (setup.sh), builds everything and runs the tests of what users rely on.
#   scripts/test.sh [--long|--all] [ctest's arguments]
# --long runs the tests that take long (label `long`) instead, --all both. Further arguments go to
# ctest, for instance  scripts/test.sh -R parallel.group  or  -L unit. The exit code is ctest's.
# With DSTUNE_WERROR=ON in the environment a warning of the compiler is an error.
set -euo pipefail
# Before anything is installed or built.
case ${1:-} in
  -h | --help | help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

preset=release
targets=(all)
case ${1:-} in
  --long | --all)
    preset=${1#--}
    targets+=(long_tests)
    shift
    ;;
esac
build_release "${targets[@]}"
cd "$checkout"
exec ctest --preset "$preset" --parallel "$(nproc)" "$@"
