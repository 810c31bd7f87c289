# The hosts of this job; "localhost" outside one.
hosts() {
  if [[ -n ${SLURM_JOB_NODELIST:-} ]]; then
    scontrol show hostnames "$SLURM_JOB_NODELIST"
  else
    echo localhost
  fi
}

