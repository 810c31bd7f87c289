#!/usr/bin/env python3
"""The scripts for Slurm and PBS, with a batch system that is played: sbatch and qsub call bash.

    batch_scripts.py PROGRAM MPIRUN SCRIPTS

SCRIPTS is the folder `scripts` of the checkout. The scripts are run in a folder of their own, as a user's.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM, MPIRUN, SCRIPTS = sys.argv[1:4]
SPACE = {
    "dstune": {"model": {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 211,
                         "max_positions": 64},
               "sequence_length": 16, "workload": {"type": "synthetic", "step_time_s": 0.01},
               "resources": {"num_gpus": 1}, "training_command": "bash train.sh --deepspeed_config ds_config.json"},
    "autotuning": {"enabled": True, "tuner_type": "gridsearch"},
    "train_micro_batch_size_per_gpu": [1, 2],
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": [0, 1]},
}
STATUS = "autotuning_results/exit_status.json"


class Batch(unittest.TestCase):
    script = ""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.write("space.json", json.dumps(SPACE))
        self.write("train.sh", 'echo "$@" > trained\n')
        self.write("nodes", "localhost\nlocalhost\n")
        # Slurm ends a job that goes back to the queue.
        for name, then in {"scontrol": "kill $PPID", "qsub": "", "qstat": ""}.items():
            self.write(f"bin/{name}", f'#!/bin/bash\necho "{name} $*" >> {self.folder}/asked\n{then}\n').chmod(0o755)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name):
        return (self.folder / name).read_text() if (self.folder / name).exists() else ""

    def submit(self, *options, **variables):
        """The exit code of the batch job, and what it said."""
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "DSTUNE_MPI": PROGRAM,
                       "LAUNCH": f"{MPIRUN} -np 2", "SLURM_SUBMIT_DIR": str(self.folder), "SLURM_NTASKS": "2",
                       "SLURM_JOB_ID": "7", "PBS_O_WORKDIR": str(self.folder), "PBS_JOBID": "7.here",
                       "PBS_NODEFILE": str(self.folder / "nodes"), "OMP_NUM_THREADS": "1", **variables}
        words = ["space.json", *options]
        if "pbs" in self.script:
            environment.update(SPACE="space.json", OPTIONS=" ".join(options))
            words = []
        ended = subprocess.run(["bash", f"{SCRIPTS}/{self.script}", *words], env=environment, text=True, timeout=60,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return ended.returncode, ended.stdout

    def test_a_job_ends_with_the_programs_code_and_not_with_an_earlier_ones(self):
        code, said = self.submit()
        self.assertEqual(code, 0, said)
        self.assertEqual(json.loads(self.read(STATUS))["exit_code"], 0, said)
        self.assertEqual("ds_config_optimal.json" in self.read("trained"), "then-train" in self.script, said)
        (self.folder / "trained").unlink(missing_ok=True)
        code, said = self.submit(LAUNCH="false")
        self.assertEqual(code, 1, said)
        self.assertEqual(self.read("trained"), "", said)

    def test_somebody_elses_file_is_left_alone(self):
        theirs = '{"exit_code": 0, "of": "something else"}\n'
        self.write(STATUS, theirs)
        code, said = self.submit()
        self.assertNotEqual(code, 0, said)
        self.assertIn("exit_status.json", said)
        self.assertEqual(self.read(STATUS), theirs)
        self.assertEqual(self.read("trained"), "", said)

    def test_a_job_that_ran_out_of_time_is_queued_again(self):
        space = json.loads(json.dumps(SPACE))
        # Some of its experiments end in that time.
        space["dstune"]["workload"]["step_time_s"] = 0.1
        space["train_micro_batch_size_per_gpu"] = list(range(1, 17))
        self.write("space.json", json.dumps(space))
        options = ["--time-limit", "6"] if self.script == "slurm/tune.sbatch" else []
        code, said = self.submit(*options, REQUEUE="yes", TUNE_TIME="6", TIME_LIMIT="6")
        self.assertEqual(code, 75 if "pbs" in self.script else -signal.SIGTERM, said)
        self.assertRegex(self.read("asked"), "scontrol requeue 7|qsub -V", said)

    def test_what_is_wrong_is_not_queued_again(self):
        self.write("space.json", "{")
        code, said = self.submit(REQUEUE="yes")
        self.assertEqual(code, 3, said)
        self.assertNotRegex(self.read("asked"), "scontrol|qsub", said)


def load_tests(loader, *_):
    suite = unittest.TestSuite()
    for script in ("slurm/tune.sbatch", "slurm/tune-then-train.sbatch", "pbs/tune.pbs", "pbs/tune-then-train.pbs"):
        suite.addTests(loader.loadTestsFromTestCase(type(script, (Batch,), {"script": script})))
    return suite


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
