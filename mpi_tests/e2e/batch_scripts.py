#!/usr/bin/env python3
"""Scripts that `dstune-mpi batch` prints, with stand-ins of the batch systems.

    batch_scripts.py PROGRAM MPIRUN [TEST...]

A program plays dstune-mpi, so that each exit code comes fast; once for each system it is dstune-mpi
itself. Jobs are submitted from a folder whose path has a blank, with options that the script does
not have. They run beside each other, and tests look at what became of them. mpi_tests/slurm has a
real Slurm.
"""
import concurrent.futures
import functools
import os
import pathlib
import sys
import tempfile
import time
import unittest

import batch_jobs
import batch_systems

PROGRAM, MPIRUN = map(os.path.abspath, sys.argv[1:3])
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
# Options of the submission that the script does not have: a job that is queued again keeps them.
FURTHER = {
    "slurm": ["--account=physics", "--partition=long", "--time=02:00:00"],
    "pbs": ["-l", "select=2:ncpus=8:mpiprocs=1:mem=100gb:host_group=longer_than_a_line_of_qstat_is",
            "-l", "walltime=02:00:00", "-q", "long", "-A", "physics", "-P", "tuning", "-N", "mine",
            "-m", "ae"],
    "lsf": ["-W", "2:00", "-q", "long", "-P", "physics", "-J", "mine", "-n", "4"],
    "flux": ["-t", "7200s", "--queue=long", "-B", "physics", "--job-name=mine", "-n", "4", "-x"],
}
# exit code of the program -> how often a job is queued again that may be twice. After 75 the next
# run ends with 0.
QUEUED_AGAIN = {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 6: 0, 7: 0, 75: 1}

# (what the system answers, the time that the script asks for, --time-limit in seconds). No answer:
# the command fails. No seconds: there is no limit.
TIME_LEFT = {
    "slurm": [("59:59", "1h", 3599), ("1-02:03:04", "30h", 93784), ("2:03:04", "3h", 7384),
              ("0:42", "1h", 42), ("UNLIMITED", "1h", None), ("NOT_SET", "1h", 3600),
              ("INVALID", "1h", 3600), (None, "1h", 3600)],
    "pbs": [("Resource_List.walltime = 01:00:00\nresources_used.walltime = 00:20:00", "2h", 2400),
            ("Resource_List.walltime = 30:00:00\nresources_used.walltime = 00:00:00", "2h", 108000),
            ("Resource_List.walltime = 3600\nresources_used.walltime = none", "2h", 3600),
            ("Resource_List.walltime = none", "2h", None), (None, "2h", 7200)],
    "lsf": [("0:59 L", "2h", 3540), ("26:5 L", "30h", 93900), ("-", "2h", None),
            ("1:00 E", "2h", 7200), (None, "2h", 7200)],
    "flux": [("3599", "2h", 3599), ("1", "2h", 1), ("4294967295", "2h", None), (None, "2h", 7200)],
}


class Job(batch_jobs.JobFolder):
    def __init__(self, system, name, *options, play=(), time_limit="1h", space=None, **variables):
        super().__init__(FOLDER / f"{system}-{name}" / "my jobs", space)
        self.system = batch_systems.SYSTEMS[system](self.path.parent / "system").install()
        self.script = self.make_script(PROGRAM, system, "--time-limit", time_limit, *options).name
        self.variables = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables
        }
        if play:
            self.play(*play)
            self.variables.update(DSTUNE_MPI=str(self.played), LAUNCH="env")
        self.jobs = []

    def submit(self, further=()):
        options = list(further)
        if isinstance(self.system, batch_systems.Pbs):
            # PBS hands on only the variables that it is told.
            options += [
                "-v", ",".join(f"{name}={value}" if "," not in value else f"{name}='{value}'"
                               for name, value in self.variables.items())
            ]
        self.system.submit(self.script, self.path, options, variables=self.variables)
        return self

    def run(self, further=()):
        self.submit(further)
        self.jobs = self.system.run()
        return self

    @property
    def code(self):
        """Of the last job."""
        return self.jobs[-1]["code"]

    @property
    def runs(self):
        return sum(job["runs"] for job in self.jobs)

    @property
    def said(self):
        return self.system.said()


def cancelled(system):
    job = Job(system, "cancelled", "--requeue", "2", play=("75 1 wait",))
    if system == "flux":
        job.variables["LAUNCH"] = "flux run -n 1"
    job.submit()
    (queued,) = job.system.jobs()
    process = job.system.start(queued)
    end = time.monotonic() + 30
    while not job.calls and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.5)
    job.system.cancel(process)
    job.system.finish(queued, process)
    job.jobs = job.system.run()
    return job


def run(system, name, *options, further=(), **more):
    return Job(system, name, *options, **more).run(further)


def answered(system, name, answer, time_limit):
    job = Job(system, name, play=("0 1",), time_limit=time_limit)
    job.system.answer(answer)
    return job.run()


def bad(system, **variables):
    job = Job(system, "bad", "--requeue", "2", **variables)
    job.write("space.json", "{")
    return job.run()


def shipped(system):
    job = Job(system, "shipped", play=("0 1",), SPACE="space.json", OPTIONS="--metric latency")
    job.script = str(next(SCRIPTS.glob(f"{system}/tune.*")))
    return job.run()


def makers():
    """(system, name) -> what runs the job."""
    again, then_train = ("--requeue", "2"), ("--then-train", "--tune-time", "10m")
    found = {}
    for system in batch_systems.SYSTEMS:

        def add(name, maker, *arguments, system=system, **more):
            found[system, name] = functools.partial(maker, system, *arguments, **more)

        def add_played(name, *options, play, further=(), add=add):
            add(name, run, str(name), *options, play=play, further=further)

        for code in QUEUED_AGAIN:
            add_played(code, *again, play=(f"{code} 1", "0 1"))
        add_played("kept", *again, play=("75 1", "75 1", "0 1"), further=FURTHER[system])
        add_played("too-often", *again, play=("75 1",))
        add_played("in-vain", "--requeue", "5", play=("75 1", "75 0", "0 1"))
        add_played("never", play=("75 1", "0 1"))
        add_played("cut", *again, play=("137 1 cut", "0 1"))
        add_played("trained", *then_train, play=("0 1",))
        add_played("not-trained", *then_train, play=("75 1",))
        add("cancelled", cancelled)
        for place, (answer, asked, _) in enumerate(TIME_LEFT[system]):
            add(f"left-{place}", answered, f"left-{place}", answer, asked)
        # The stand-in of Slurm has no nodes that mpirun could ask it for.
        launch = {"LAUNCH": f"{MPIRUN} -np 2 --bind-to none"} if system == "slurm" else {}
        add("real", run, "real", *again, *then_train, **launch)
        add("bad", bad, **launch)
        add("shipped", shipped)
    return found


class BatchTest(unittest.TestCase):
    system = ""
    maxDiff = None

    def job(self, name):
        return JOBS[self.system, name].result()

    def check(self, name, code, runs):
        job = self.job(name)
        self.assertEqual((job.code, job.runs), (code, runs), f"{name}:\n{job.said}")
        return job

    def test_the_exit_code_decides(self):
        for code, again in QUEUED_AGAIN.items():
            with self.subTest(code=code):
                self.check(code, 0 if again else code, 1 + again)

    def test_a_job_that_was_cut_off_is_not_queued_again(self):
        self.check("cut", 1, 1)

    def test_a_job_is_queued_again_only_where_that_was_asked_for(self):
        self.check("never", 75, 1)

    def test_a_job_is_queued_again_at_most_so_often(self):
        self.check("too-often", 75, 3)

    def test_a_job_that_gains_nothing_is_not_queued_again(self):
        self.check("in-vain", 75, 2)

    def test_a_job_that_is_queued_again_keeps_what_it_asked_for(self):
        job = self.check("kept", 0, 3)
        first, *later = map(kept, job.jobs)
        for queued in later:
            # PBS hands on what the script has in its environment, too.
            self.assertEqual({**queued, "variables": {**queued["variables"], **first["variables"]}},
                             queued)
            self.assertEqual({**queued, "variables": None}, {**first, "variables": None})
        self.assertEqual(len({tuple(without_time(words)) for words in job.calls}), 1, job.calls)

    def test_a_cancelled_job_is_not_queued_again(self):
        job = self.job("cancelled")
        self.assertEqual((job.exit_code, job.runs), (75, 1), job.said)

    def test_the_time_that_is_left(self):
        for place, (answer, asked, expected) in enumerate(TIME_LEFT[self.system]):
            with self.subTest(answer=answer, asked=asked):
                job = self.check(f"left-{place}", 0, 1)
                (words,) = job.calls
                told = batch_jobs.time_limit_of(words)
                if expected is None:
                    self.assertIsNone(told, job.said)
                else:
                    # Some seconds go by meanwhile.
                    self.assertIn(int(told), range(expected - 20, expected + 1), job.said)

    def test_the_training_gets_a_complete_answer_alone(self):
        job = self.check("trained", 0, 1)
        self.assertEqual(job.read("trained"), "--deepspeed_config played.json\n", job.said)
        job = self.check("not-trained", 75, 1)
        self.assertEqual(job.read("trained"), "", job.said)

    def test_dstune_mpi_itself_tunes_and_the_training_follows(self):
        job = self.check("real", 0, 1)
        self.assertEqual(job.best, "z0_gas2_tmbspg2", job.said)
        self.assertIn("ds_config_optimal.json", job.read("trained"), job.said)

    def test_bad_input_ends_with_3(self):
        job = self.check("bad", 3, 1)
        self.assertIn("space.json", job.said)


    def test_the_shipped_script_takes_a_space_and_options(self):
        (words,) = self.check("shipped", 0, 1).calls
        self.assertEqual(words[-1], "space.json", words)
        self.assertIn("--metric latency", " ".join(words))


def kept(job):
    """What a job asked for and has, the count of its restarts apart."""
    variables = {
        name: value
        for name, value in job["variables"].items()
        if name not in ("RESTARTS", "_", "SHLVL", "PWD", "OLDPWD") and not name.startswith("PBS_")
    }
    return {
        **job, "request": batch_request(job["request"]), "variables": variables,
        **dict.fromkeys(("number", "runs", "code", "began", "state"))
    }


def batch_request(request):
    if "attributes" not in request:
        return {name: value for name, value in request.items() if name != "Variable_List"}
    system = dict(request["attributes"]["system"])
    system["environment"] = {
        name: value
        for name, value in system["environment"].items()
        if name != "RESTARTS"
    }
    return {**request, "attributes": {"system": system}}


def without_time(words):
    place = words.index("--time-limit") if "--time-limit" in words else len(words)
    return words[:place] + words[place + 2:]


def load_tests(loader, *_):
    suite = unittest.TestSuite()
    for system in batch_systems.SYSTEMS:
        suite.addTests(loader.loadTestsFromTestCase(type(system, (BatchTest,),
                                                         {"system": system})))
    return suite


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dstune-batch-") as temporary, \
            concurrent.futures.ThreadPoolExecutor(6) as pool:
        FOLDER = pathlib.Path(temporary)
        JOBS = {key: pool.submit(maker) for key, maker in makers().items()}
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
