# The hosts of this job; "localhost" outside one.
hosts() {
  if [[ -n ${PBS_NODEFILE:-} ]]; then
    awk '!seen[$1]++ { print $1 }' "$PBS_NODEFILE"
  else
    echo localhost
  fi
}

