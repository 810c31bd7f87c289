#!/usr/bin/env bash
# Installs what is missing (setup.sh), builds everything and runs all tests. Further arguments go to
# ctest, for instance  scripts/test.sh -R parallel.group  or  -L unit. The exit code is ctest's.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

build_release all
cd "$checkout"
exec ctest --preset release --parallel "$(nproc)" "$@"
