#!/usr/bin/env python3
"""dstune-mpi batch: its scripts are read by bash and by shellcheck, and start what was asked for.

    batch_command.py PROGRAM

A launcher that is played writes down the words that it gets. No MPI and no batch system is needed.
"""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
SYSTEMS = ("slurm", "pbs", "lsf", "flux")
SPACE = {
    "dstune": {"model": {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 211,
                         "max_positions": 64},
               "sequence_length": 16, "resources": {"num_gpus": [1, 4], "num_nodes": [1, 2]},
               "training_command": "train.py --deepspeed_config $CONFIG"},
    "autotuning": {"enabled": True}, "train_micro_batch_size_per_gpu": [1, 2],
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": [0, 1]},
}
# It ends as the file `code` says, as the program does, and by that number itself.
LAUNCHER = """#!/bin/bash
printf '%s\\0' "$@" >words
mkdir -p "$RESULTS"
[[ ! -e code ]] || printf '{"exit_code": %d}\\n' "$(cat code)" >"$RESULTS/exit_status.json"
exit "$(cat code launcher_code 2>/dev/null | head -n 1)"
"""


class BatchCommand(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "it's a\n$(folder) "
        self.folder.mkdir()
        self.write("space.json", json.dumps(SPACE))
        for name in ("flux", "qstat", "bjobs", "squeue"):
            self.write(f"bin/{name}", "#!/bin/bash\nexit 1\n").chmod(0o755)
        self.write("launch", LAUNCHER).chmod(0o755)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def print(self, *words, code=0, **variables):
        """Stdout and stderr of the command."""
        kept = {name: text for name, text in os.environ.items()
                if name not in ("LOADEDMODULES", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_EXE")}
        ended = subprocess.run([PROGRAM, "batch", *words], cwd=self.folder, env={**kept, **variables}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stdout, ended.stderr

    def run_script(self, script, **variables):
        """The exit code of a script, what it said, and the words that the launcher got."""
        home = self.folder / "elsewhere"
        home.mkdir(exist_ok=True)
        self.write("elsewhere/tune", script)
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(home),
                       "PBS_O_WORKDIR": str(home), "LS_SUBCWD": str(home), "SLURM_JOB_ID": "7", "PBS_JOBID": "7",
                       "LSB_JOBID": "7", "RESULTS": "autotuning_results", **variables}
        ended = subprocess.run(["bash", "tune"], cwd=home, env=environment, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=60, check=False)
        words = home / "words"
        return ended.returncode, ended.stdout, words.read_text().split("\0")[:-1] if words.exists() else []

    def test_bash_and_shellcheck_take_every_script(self):
        variants = (("--backend", "cpu"), ("--gpus-per-node", "4", "--requeue", "3", "--metric", "latency"),
                    ("--then-train", "--tune-time", "10m", "--launch", "srun --mpi=pmix"), ("--tasks-per-node", "8"))
        shellcheck = shutil.which("shellcheck")
        for system, options in itertools.product(SYSTEMS, variants):
            script = self.write("script", self.print(system, *options, "space.json", LOADEDMODULES="gcc/12:mpi/4",
                                                     VIRTUAL_ENV="/a venv", CONDA_PREFIX="/conda")[0])
            checks = [["bash", "-n"]] + ([[shellcheck, "--external-sources", "--exclude=SC1091"]] if shellcheck else [])
            for words in checks:
                ended = subprocess.run([*words, script], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       check=False)
                self.assertEqual(ended.returncode, 0, f"{words} {system} {options}:\n{ended.stdout}")
        if not shellcheck:
            print("shellcheck is not installed")

    def test_the_program_gets_what_the_command_got(self):
        for name in ("a", "b"):
            self.write(f"it's {name}.json", json.dumps({"name": name, "num_gpus": 4, "num_nodes": 2, "ds_config": {}}))
        self.write("it's.py", "")
        (self.folder / "elsewhere").mkdir()
        self.write("elsewhere/code", "0")
        launch = self.folder / "launch"
        options = ("--seed", "3", "--experiments", "it's a.json", "--experiments", "it's b.json", "--verify=it's.py",
                   "--full", "--reserve", "20s")
        for system in SYSTEMS:
            script, _ = self.print(system, *options, "--time-limit", "50m", "--launch",
                                   "\"$HERE\" -n \"$ranks\"", "space.json")
            code, said, words = self.run_script(script, HERE=str(launch), SLURM_NTASKS="8", LSB_DJOB_NUMPROC="8",
                                                PBS_NODEFILE=str(self.write("nodes", "n\n" * 8)),
                                                OPTIONS="--num-trials '7'")
            self.assertEqual(code, 0, said)
            given = words[3:]
            limit = given.index("--time-limit")
            self.assertEqual(words[:2], ["-n", "8"], system)
            self.assertEqual(pathlib.Path(words[2]).resolve(), pathlib.Path(PROGRAM).resolve())
            self.assertIn(int(given[limit + 1]), range(2950, 3001))
            for pair in (["--seed", "3"], ["--reserve", "20s"], ["--results-dir", "autotuning_results"],
                         ["--experiments", str(self.folder / "it's a.json")],
                         ["--experiments", str(self.folder / "it's b.json")],
                         ["--num-trials", "7"]):
                self.assertTrue(any(given[at:at + 2] == pair for at in range(len(given))), (pair, given))
            self.assertIn(f"--verify={self.folder}/it's.py", given)
            self.assertIn("--full", given)
            self.assertEqual(given[-1], str(self.folder / "space.json"))

    def test_a_script_ends_with_the_programs_code(self):
        script, _ = self.print("slurm", "--launch", "\"$HERE\"", "--requeue", "2", "space.json")
        for wanted in ("0", "3", "75"):
            (self.folder / "elsewhere").mkdir(exist_ok=True)
            self.write("elsewhere/code", wanted)
            code, said, _ = self.run_script(script, HERE=str(self.folder / "launch"))
            self.assertEqual(code, int(wanted), said)
        # Nothing ended in the last one.
        self.assertIn("not queued again", said)
        (self.folder / "elsewhere/code").unlink()
        # Its folder may not be its own; then the launcher tells.
        for wanted, seen in (("3", 3), ("0", 1), ("75", 1)):
            self.write("elsewhere/launcher_code", wanted)
            code, said, _ = self.run_script(script, HERE=str(self.folder / "launch"))
            self.assertEqual(code, seen, said)
            self.assertNotIn("queue", said)

    def test_settings_that_bash_can_not_read_end_with_2(self):
        script, _ = self.print("slurm", "--launch", "\"$HERE\"", "space.json")
        for name, text in (("OPTIONS", "--metric 'latency"), ("OPTIONS", "--metric latency; x"),
                           ("LAUNCH", "mpirun 'a")):
            code, said, words = self.run_script(script, HERE=str(self.folder / "launch"), **{name: text})
            self.assertEqual((code, words), (2, []), said)
            self.assertIn(f"{name} can not be read", said)

    def test_a_cancelled_job_does_not_train(self):
        # The last step ended meanwhile, so that the answer is complete.
        self.write("launch", "#!/bin/bash\ntrap '' USR1\nkill -TERM $PPID\nsleep 1\nmkdir -p $RESULTS\n"
                             "echo '{\"exit_code\": 0}' >$RESULTS/exit_status.json\n"
                             "echo touch trained >$RESULTS/cmd_optimal.txt\n").chmod(0o755)
        script, _ = self.print("slurm", "--then-train", "--launch", "\"$HERE\"", "space.json")
        code, said, _ = self.run_script(script, HERE=str(self.folder / "launch"))
        self.assertEqual(code, 0, said)
        self.assertFalse((self.folder / "elsewhere/trained").exists(), said)

    def test_modules_may_be_none(self):
        for words, loaded in (((), True), (("--module", ""), False)):
            script, _ = self.print("slurm", *words, "space.json", LOADEDMODULES="gcc/12")
            self.assertEqual("\nmodule load gcc/12" in script, loaded, script)

    def test_a_job_is_as_large_as_the_space_needs(self):
        script, _ = self.print("slurm", "space.json")
        for line in ("--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--cpus-per-task=4", "--time=01:00:00"):
            self.assertIn(f"\n#SBATCH {line}\n", script)
        script, _ = self.print("slurm", "--backend", "cpu", "--nodes", "3", "--tasks-per-node", "6", "space.json")
        self.assertIn("\n#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=6\n", script)
        self.assertNotIn("--gpus-per-node", script)
        self.assertIn("--backend cpu", script)
        script, _ = self.print("slurm", "--tasks-per-node", "6", "space.json")
        self.assertIn("\n##SBATCH --gpus-per-node=6 ", script)
        self.write("group.json", json.dumps({"name": "a", "num_gpus": 3, "num_nodes": 5, "ds_config": {}}))
        script, _ = self.print("slurm", "--experiments", "group.json", "space.json")
        self.assertIn("\n#SBATCH --nodes=5\n#SBATCH --ntasks-per-node=3\n", script)
        script, said = self.print("slurm", "--nodes", "1", "space.json", code=2)
        self.assertEqual(script, "")
        self.assertIn("--nodes 2 --tasks-per-node 4", said)

    def test_a_space_without_groups_gets_what_is_asked_for(self):
        del SPACE["dstune"]["resources"]
        self.addCleanup(SPACE["dstune"].update, resources={"num_gpus": [1, 4], "num_nodes": [1, 2]})
        self.write("space.json", json.dumps(SPACE))
        self.assertIn("--gpus-per-node ask for more", self.print("slurm", "space.json")[1])
        script, said = self.print("slurm", "--nodes", "2", "--gpus-per-node", "8", "space.json")
        self.assertIn("\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n", script)
        self.assertNotIn("ask for more", said)

    def test_nothing_is_printed_for_bad_input(self):
        cases = {("space.json",): 2, (): 2, ("slurm",): 2, ("sge", "space.json"): 2, ("slurm", "missing.json"): 3,
                 ("slurm", "--job-name", "a b", "space.json"): 2, ("slurm", "--batch-option", "a\nb", "space.json"): 2,
                 ("slurm", "--tune-time", "1h", "space.json"): 2, ("slurm", "--dry-run", "space.json"): 2,
                 ("slurm", "--then-train", "--time-limit", "1h", "--tune-time", "2h", "space.json"): 2,
                 ("slurm", "--nodes", "0", "space.json"): 2, ("slurm", "wrong.json"): 3,
                 ("slurm", "--batch-option", "constraint=a100", "space.json"): 2,
                 ("lsf", "--launch", " ", "space.json"): 2, ("flux", "--time-limit", "99999999h", "space.json"): 2,
                 ("slurm", "--calibrate", "no.json", "space.json"): 3, ("pbs", "--import", "no", "space.json"): 3}
        self.write("wrong.json", json.dumps({**SPACE, "zero_optimization": {"stage": [0, 9]}}))
        for words, code in cases.items():
            printed, said = self.print(*words, code=code)
            self.assertEqual(printed, "", words)
            self.assertNotEqual(said, "", words)
        planned = subprocess.run([PROGRAM, "plan", "wrong.json"], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(self.print("slurm", "wrong.json", code=3)[1], planned.stderr)
        self.assertEqual(list(self.folder.glob("autotuning*")), [])
        # A training needs its command.
        space = json.loads(json.dumps(SPACE))
        del space["dstune"]["training_command"]
        self.write("wrong.json", json.dumps(space))
        self.assertIn("/dstune/training_command", self.print("pbs", "--then-train", "wrong.json", code=3)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
