# The command line and the table of programs that try this checkout on bare systems. To be sourced, after roots.sh.
# shellcheck shell=bash disable=SC2034,SC2154  # for the caller, who sets all_steps, folder and jobs

# usage: the comment that the caller's file begins with.
usage() {
  sed -n '2,/^set -/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
  exit 2
}

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

# begin_tries ARGUMENTS: reads the options, and begins the table in the folder.
begin_tries() {
  local list=no program
  chosen_systems="" chosen_steps="" keep=no
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
}

# told FORMAT ARGUMENT...: a line of the table.
told() {
  # shellcheck disable=SC2059  # the caller's format
  printf "$@" | tee -a "$table"
}

# timed WHAT WORDS: runs the words in the root; $result is ok, or names the log, and $took the seconds.
timed() {
  local started=$SECONDS log=$name.${1//[^A-Za-z0-9.+]/-}.log
  result=ok
  within "$2" >"$folder/$log" 2>&1 || result="FAILED ($log)"
  took=$((SECONDS - started))
  [[ $result == ok ]] || failed=1
}
