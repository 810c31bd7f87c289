#!/usr/bin/env bash
# shellcheck disable=SC2034  # missing_packages: for install_missing
# The Slurm that tests start on this machine. setup.sh sources it. Nothing is configured, and no service of the
# system is used: mpi_tests/slurm/cluster.py has a folder of its own for that.

# Their daemons are in sbin, which needs.sh adds to no PATH.
slurm_is_there() {
  local name
  for name in munged slurmctld slurmd sbatch; do
    PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$name" >/dev/null || return 1
  done
}

ensure_slurm() {
  if slurm_is_there; then
    say "Slurm is there: $(PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" slurmctld -V)"
    return
  fi
  if command -v apt-get >/dev/null && can_become_root; then
    missing_packages=(slurm-wlm munge)
    install_missing || say "apt-get did not succeed"
    hash -r
  fi
  if ! slurm_is_there; then
    say "The tests of batch scripts need the commands munged, slurmctld, slurmd and sbatch"
    say "(Debian and Ubuntu: slurm-wlm, munge). As root this script installs them there."
    return 1
  fi
  say "Slurm was installed: $(PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" slurmctld -V)"
}
