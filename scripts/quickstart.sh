#!/usr/bin/env bash
# From a fresh checkout to an optimal DeepSpeed configuration: installs what is missing (setup.sh),
# builds, and tunes the example on 4 ranks. The answer stands in autotuning_results/ of the checkout.
# Further arguments go to dstune-mpi; the exit code is its own. A second run resumes: it repeats
# nothing. RANKS changes the number of ranks, 2 or more.
set -euo pipefail
# Before anything is installed or built.
case ${1:-} in
  -h | --help | help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    printf 'Options of dstune-mpi: build/release/dstune-mpi --help, once it is built.\n'
    exit 0
    ;;
esac
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

build_release dstune-mpi
cd "$checkout"
ranks=${RANKS:-4}
if [[ -z ${OMP_NUM_THREADS:-} ]]; then
  threads=$(($(nproc) / ranks))
  export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
fi
say "For your own space in a batch job, from any folder (slurm, pbs, lsf or flux):
  $checkout/build/release/dstune-mpi batch slurm space.json > tune.sbatch
  sbatch tune.sbatch        # docs/installing.md says how to install the program for all users"
say "mpirun -np $ranks build/release/dstune-mpi scripts/spaces/quickstart.json${*:+ $*}"
exec mpirun -np "$ranks" build/release/dstune-mpi scripts/spaces/quickstart.json "$@"
