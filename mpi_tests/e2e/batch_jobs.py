"""What tests of batch scripts share: a job's folder, and a program that plays dstune-mpi in it."""
import collections
import json
import pathlib
import shlex
import subprocess

SPACE = {
    "dstune": {
        "model": {
            "family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 211,
            "max_positions": 64
        }, "sequence_length": 16, "workload": {"type": "synthetic",
                                               "step_time_s": 0.01}, "resources": {"num_gpus": 1},
        "trial_budget_s": 2, "training_command": "bash train.sh --deepspeed_config ds_config.json"
    },
    "autotuning": {"enabled": True, "tuner_type": "gridsearch", "tuner_early_stopping": 0},
    "train_micro_batch_size_per_gpu": [1, 2],
    "gradient_accumulation_steps": [1, 2],
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 0},
}

# The n-th run does what the n-th line of the file "play" beside it says, a later one what the last
# line says: CODE GAINED [cut|wait]. GAINED experiments are finished. "cut": the run leaves no
# exit_status.json. "wait": it ends by SIGUSR1 alone.
PLAYED = r"""#!/bin/bash
here=$(dirname "$0")
printf '%q ' "$@" >>"$here/called"
echo >>"$here/called"
results=autotuning_results
while (($#)); do
  [[ $1 != --results-dir ]] || results=$2
  shift
done
mkdir -p "$results"
run=$(wc -l <"$here/called")
read -r code gained how < <(sed -n "${run}p" "$here/play"; tail -n 1 "$here/play")
if [[ $how == wait ]]; then
  sleep 100 &
  trap 'kill %1' USR1
  trap '' TERM INT
  wait %1
fi
for ((i = 0; i < gained; i++)); do
  event="{\"kind\":\"finished\",\"name\":\"played_$run.$i\"}"
  echo "{\"bytes\":${#event},\"crc32\":\"00000000\",\"event\":$event}" >>"$results/journal.jsonl"
done
[[ $code -ne 0 ]] || echo "bash train.sh --deepspeed_config played.json" >"$results/cmd_optimal.txt"
if [[ $how != cut ]]; then
  printf '{\n  "exit_code": %s,\n  "reason": "played"\n}\n' "$code" >"$results/exit_status.json.tmp"
  mv "$results/exit_status.json.tmp" "$results/exit_status.json"
fi
exit "$code"
"""


class JobFolder:
    """The folder that a user submits from."""
    def __init__(self, path, space=None):
        self.path = pathlib.Path(path)
        self.path.mkdir(parents=True)
        self.write("space.json", json.dumps(space or SPACE))
        self.write("train.sh", 'echo "$@" >>trained\n')
        self.played = self.write("played", PLAYED)
        self.played.chmod(0o755)

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, name):
        path = self.path / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def play(self, *lines):
        """What the runs of the played program do, a line a run."""
        self.write("play", "".join(f"{line}\n" for line in lines))

    @property
    def calls(self):
        """The words that each run of the played program was started with."""
        return [shlex.split(line) for line in self.read("called").splitlines()]

    @property
    def exit_code(self):
        """What exit_status.json says, None without one."""
        text = self.read("autotuning_results/exit_status.json")
        return json.loads(text)["exit_code"] if text else None

    @property
    def best(self):
        text = self.read("autotuning_results/optimal.json")
        return json.loads(text)["name"] if text else None

    def events(self, kind):
        """How often the journal has an event of this kind, by the experiment's name."""
        lines = self.read("autotuning_results/journal.jsonl").splitlines()
        events = [json.loads(line)["event"] for line in lines if line.endswith("}}")]
        return collections.Counter(event.get("name") for event in events if event["kind"] == kind)

    def make_script(self, program, system, *options, space="space.json"):
        """The script that `dstune-mpi batch SYSTEM OPTIONS space.json` prints: job.SYSTEM."""
        made = subprocess.run([program, "batch", system, *options, space],
                              cwd=self.path,
                              text=True,
                              check=False,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        if made.returncode != 0:
            raise RuntimeError(
                f"dstune-mpi batch {system} ended with {made.returncode}: {made.stderr}")
        return self.write(f"job.{system}", made.stdout)


def time_limit_of(words):
    """The value of --time-limit, None without it."""
    return words[words.index("--time-limit") + 1] if "--time-limit" in words else None
