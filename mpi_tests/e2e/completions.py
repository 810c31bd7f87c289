#!/usr/bin/env python3
"""completions.py FOLDER REFERENCE: the generated completions in real shells, and the manual pages under the judges that
are installed.

FOLDER has the generated files, and REFERENCE is the program that writes them. A shell or a judge that is not installed
is named and left out. The exit code is 1 where something fails, and 77 where nothing is installed.
"""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

FILES = ("space.json", "a b.json", "other.hjson", "third.yaml", "hostfile", "train.py")
FOLDERS = ("results", "more results")
CONFIGS = {"space.json", "a b.json", "other.hjson", "third.yaml"} | set(FOLDERS)

# A command line up to the cursor, what has to be offered, and what may not be.
CASES = (
    ("dstune-mpi pl", {"plan"}, {"check", "status"}),
    ("dstune-mpi s", {"status", "space.json"}, {"plan", "train.py"}),
    ("dstune-mpi plan --dev", {"--device"}, {"--dry-run"}),
    ("dstune-mpi plan --me", {"--metric"}, {"--device"}),
    ("dstune-mpi check --st", {"--strict"}, {"--seed"}),
    ("dstune-mpi status --", {"--format", "--color", "--help"}, {"--tuner", "--device"}),
    ("dstune-mpi --tuner ", {"race", "gridsearch", "random", "model_based"}, {"space.json"}),
    ("dstune-mpi --metric lat", {"latency"}, {"flops"}),
    ("dstune-mpi plan --device h10", {"h100", "h100-pcie"}, {"a10"}),
    ("dstune-mpi --results-dir ", set(FOLDERS), {"space.json", "hostfile"}),
    ("dstune-mpi --hostfile ho", {"hostfile"}, {"space.json"}),
    ("dstune-mpi plan ", CONFIGS, {"train.py", "hostfile", "status"}),
    ("dstune-mpi check other.hjson ", CONFIGS - {"other.hjson"}, {"train.py"}),
    ("dstune-mpi status ", set(FOLDERS), {"space.json", "plan"}),
    ("dstune-mpi --seed 1 --se", set(), {"--seed"}),
    ("dstune-mpi --experiments space.json --ex", {"--experiments", "--exps-dir"}, {"--seed"}),
    ("dstune-mpi batch ", {"slurm", "pbs", "lsf", "flux"}, {"space.json"}),
    ("dstune-mpi batch slurm ", CONFIGS, {"slurm"}),
    ("dstune-mpi batch slurm --acc", {"--account"}, {"--seed"}),
    ("dstune-mpi batch slurm --tuner ra", {"race"}, {"latency"}),
    ("dstune-mpi --verify=tr", {"train.py"}, {"space.json"}),
    ("dstune-mpi --num-trials ", set(), {"space.json", "plan"}),
)

BASH = r"""
source "$1/dstune-mpi.bash"
while IFS= read -r line; do
  [[ $line == *' ' ]] && last=yes || last=
  read -r -a COMP_WORDS <<< "${line//=/ = }"
  [[ -z $last ]] || COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  _dstune_mpi
  echo "line $line"
  printf '%s\n' "${COMPREPLY[@]}"
done
"""

FISH = r"""
source $argv[1]/dstune-mpi.fish
while read -l --delimiter \n line
    echo "line $line"
    complete -C"$line"
end
"""

# The words that zsh finds are printed, too; _files asks whether there were any.
ZSH = r"""
PS1= PS2=
fpath=($1 $fpath)
autoload -Uz compinit
compinit -D -u
unset zle_bracketed_paste
setopt no_auto_list
zstyle ':completion:*' menu no
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  typeset -a found
  builtin compadd -A found "$@"
  (( $#found )) && print -l "${(@)found/#/found }"
  builtin compadd "$@"
}
offer() { print -- "\nbegin"; zle complete-word; print -- "\nend" }
zle -N offer
bindkey '^I' offer
print ready
"""


def by_lines(command, script, folder, cwd):
    """The offers of a shell that reads all lines, by line."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        lines = "".join(line + "\n" for line, *_ in CASES)
        ended = subprocess.run([*command, file.name, folder], input=lines, cwd=cwd, capture_output=True, text=True,
                               timeout=60, check=False)
    offers, found = {}, None
    for line in ended.stdout.split("\n"):
        if line.startswith("line "):
            found = offers.setdefault(line[len("line "):], set())
        elif line and found is not None:
            found.add(line.split("\t")[0])
    return offers, ended.stderr


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command, cwd):
        self.child, self.master = pty.fork()
        if self.child == 0:
            os.chdir(cwd)
            os.execvpe(command[0], command, {**os.environ, "TERM": "dumb"})
        self.read = ""

    def send(self, text):
        os.write(self.master, text.encode())

    def until(self, mark):
        """What comes before the mark; fails after ten seconds."""
        end = time.monotonic() + 10
        while mark not in self.read:
            if not select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no {mark!r} in {self.read!r}")
            self.read += os.read(self.master, 65536).decode(errors="replace").replace("\r", "")
        before, _, self.read = self.read.partition(mark)
        return before

    def close(self):
        os.close(self.master)
        os.waitpid(self.child, 0)


def by_zsh(folder, cwd):
    with tempfile.NamedTemporaryFile("w", suffix=".zsh") as file:
        file.write(ZSH)
        file.flush()
        shell = Terminal(["zsh", "-f", "-i"], cwd)
        try:
            shell.send(f"source {file.name} {folder}\n")
            shell.until("\nready\n")
            offers = {}
            for line, *_ in CASES:
                shell.send(line + "\t")
                shell.until("\nbegin\n")
                offers[line] = {found[len("found "):] for found in shell.until("\nend\n").split("\n")
                                if found.startswith("found ")}
                shell.send("\x15")  # takes the line away
        finally:
            shell.close()
    return offers, ""


def plain(offer):
    """An offer without its quotes, its place and the slash of a folder."""
    offer = offer.replace("\\", "").strip("'\"").rstrip("/ ")
    return offer.split("=", 1)[1] if offer.startswith("--verify=") else offer.rstrip("=")


def shells(folder, cwd):
    """Problems of the shells that are installed, and how many these are."""
    problems, asked = [], 0
    for name, ask in (("bash", lambda: by_lines(["bash"], BASH, folder, cwd)),
                      ("fish", lambda: by_lines(["fish", "--no-config"], FISH, folder, cwd)),
                      ("zsh", lambda: by_zsh(folder, cwd))):
        if shutil.which(name) is None:
            print(f"{name} is not installed: its completion is not tried")
            continue
        asked += 1
        offers, errors = ask()
        if errors:
            problems.append(f"{name} says: {errors}")
        for line, expected, refused in CASES:
            offered = {plain(offer) for offer in offers.get(line, ())}
            if not expected <= offered or refused & offered:
                problems.append(f"{name}: {line!r} offers {sorted(offered)}, not {sorted(expected)} without "
                                f"{sorted(refused)}")
        print(f"{name}: {len(CASES)} lines")
    return problems, asked


def pages(reference, folder):
    """Problems that the judges of manual pages see, and how many of these are installed."""
    problems, asked = [], 0
    # A page without a date is one that mandoc complains of.
    subprocess.run([reference, "manuals", folder], env={**os.environ, "SOURCE_DATE_EPOCH": "1795000000"}, check=True)
    for command in (["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"], ["groff", "-ww", "-man", "-Tutf8"],
                    ["mandoc", "-T", "lint", "-W", "style"]):
        if shutil.which(command[0]) is None:
            print(f"{command[0]} is not installed: it does not judge the manual pages")
            continue
        asked += 1
        for page in ("dstune-mpi.1", "dstune-space.5"):
            ended = subprocess.run([*command, os.path.join(folder, page)], capture_output=True, text=True, check=False,
                                   env={**os.environ, "MANROFFSEQ": "", "MANWIDTH": "80"})
            said = ended.stdout if command[0] == "mandoc" else ended.stderr
            if ended.returncode or said:
                problems.append(f"{command[0]} of {page}: {ended.returncode} {said}")
        print(f"{command[0]}: both pages")
    return problems, asked


def main(folder, reference):
    folder = os.path.abspath(folder)
    with tempfile.TemporaryDirectory() as temporary:
        cwd = pathlib.Path(temporary, "user")
        for name in FOLDERS:
            pathlib.Path(cwd, name).mkdir(parents=True)
        for name in FILES:
            pathlib.Path(cwd, name).touch()
        os.environ["HOME"] = temporary
        problems, asked = shells(folder, cwd)
        more, judges = pages(os.path.abspath(reference), os.path.join(temporary, "pages"))
    for problem in problems + more:
        print(problem)
    if problems or more:
        return 1
    return 0 if asked + judges else 77


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
