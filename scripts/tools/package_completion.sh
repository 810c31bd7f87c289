#!/usr/bin/env bash
# Asks bash, zsh and fish to complete the installed dstune-mpi, as a key does: package_systems.sh calls it on
# a system that has them. It names what does not answer, and ends with 1.
set -u
failed=0

# expect SHELL LINE WORD ANSWER: does the answer have the word? It is longer than what the line has of it.
expect() {
  if [[ $4 == *"$3"* ]]; then
    echo "$1: '$2' has $3"
  else
    echo "$1: '$2' has no $3: $4"
    failed=1
  fi
}

# As bash-completion does it: the file is found by the command's name when that is completed first.
in_bash() {
  bash -c '
    . /usr/share/bash-completion/bash_completion
    if declare -F _comp_load >/dev/null; then _comp_load dstune-mpi; else _completion_loader dstune-mpi; fi
    COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
    read -ra COMP_WORDS <<<"$1"
    [[ $1 != *" " ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    called=$(complete -p dstune-mpi | sed "s/.* -F \([^ ]*\).*/\1/")
    "$called" dstune-mpi "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
    printf "%s\n" "${COMPREPLY[@]}"' bash "$1"
}

# A zsh on a terminal of its own gets the key; its list is what it prints until it is silent.
in_zsh() {
  zsh -fc '
    zmodload zsh/zpty
    zpty inner zsh -fi
    zpty -w inner "PS1=; stty columns 200; autoload -Uz compinit && compinit -u -D; echo rea\"\"dy"
    while zpty -r inner line && [[ $line != *ready* ]]; do :; done
    zpty -w -n inner "$1$(printf "\t\t")"
    for second in 1 2 3; do
      sleep 1
      while zpty -r -t inner line; do printf "%s\n" "$line"; done
    done
    zpty -d inner' zsh "$1" | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | tr -d '\r\a'
}

in_fish() { fish -c "complete -C'$1'" | cut -f1; }

for shell in bash zsh fish; do
  expect "$shell" "dstune-mpi pl" plan "$("in_$shell" "dstune-mpi pl")"
  expect "$shell" "dstune-mpi plan --dev" --device "$("in_$shell" "dstune-mpi plan --dev")"
  expect "$shell" "dstune-mpi --tuner " gridsearch "$("in_$shell" "dstune-mpi --tuner ")"
done
exit "$failed"
