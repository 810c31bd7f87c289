#!/usr/bin/env python3
"""Scripts that `dstune-mpi batch slurm` prints, in a real Slurm with two nodes on this machine.

    slurm_test.py PROGRAM [TEST...]

All jobs are submitted at once, each in a folder of its own whose path has a blank, and run beside
each other. A test waits for its own. Code 77, with the reason, where there is no root or no Slurm.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import cluster
import jobs

# exit code -> (state, exit code of the job, how often it was queued again). It may be twice, and
# each run gains an experiment. After 75 the next run ends with 0.
ENDINGS = {
    0: ("COMPLETED", 0, 0),
    1: ("FAILED", 1, 0),
    2: ("FAILED", 2, 0),
    3: ("FAILED", 3, 0),
    4: ("FAILED", 4, 0),
    6: ("FAILED", 6, 0),
    7: ("FAILED", 7, 0),
    75: ("COMPLETED", 0, 1),
}

PROGRAM = os.path.abspath(sys.argv[1])
JOBS = {}


def entered(context):
    unittest.addModuleCleanup(context.__exit__, None, None, None)
    return context.__enter__()


def setUpModule():
    folder = entered(tempfile.TemporaryDirectory(prefix="dstune slurm jobs "))
    to = entered(cluster.Cluster(4, {"all": (0, 1), "failing": (2, 3)}))
    JOBS.update(jobs.submit_all(jobs.Place(PROGRAM, folder, to), ENDINGS))


class SlurmTest(unittest.TestCase):
    maxDiff = None

    def check(self, name, state, code, restarts):
        job = JOBS[name]
        self.assertEqual(job.ended(), (state, code, restarts), f"{name}:\n{job.said}")
        return job

    def measured_once(self, job):
        twice = {name: count for name, count in job.events("finished").items() if count > 1}
        self.assertEqual(twice, {}, job.said)


class FaultTest(SlurmTest):
    @classmethod
    def setUpClass(cls):
        for name in jobs.FAULTS:
            JOBS[name].until("finished", 2)
        cancelled, node = JOBS["cancelled"], JOBS["node"]
        cls.running = cancelled.number, status_of(cancelled), run_status(cancelled)
        for name in jobs.FAULTS:
            JOBS[name].write("space.json", json.dumps(jobs.SHORT_SPACE))
            if "rank" in name:
                os.kill(JOBS[name].process_of(int(name[-1])), signal.SIGKILL)
        to = node.place.cluster
        to.cancel(cancelled.number)
        cls.before = sum(node.events("finished").values())
        to.fail("node3")
        to.repair("node3")

    def test_a_running_job_shows_where_it_is(self):
        number, status, text = self.running
        self.assertEqual(status["life"], "running", status)
        self.assertIn(f"SLURM_JOB_ID={number}", json.dumps(status["lock"]))
        self.assertIn(f"scancel {number}; the same command resumes", text)

    def test_a_cancelled_job_is_not_queued_again_and_resumes(self):
        job = JOBS["cancelled"]
        state, _, restarts = job.ended()
        self.assertEqual((state, restarts), ("CANCELLED", 0), job.said)
        self.assertTrue(job.read("autotuning_results/ds_config_optimal.json"), job.said)
        self.resume(job)
        self.assertEqual(status_of(job)["life"], "ended")

    def test_a_lost_rank_ends_a_job_of_mpirun_and_it_resumes(self):
        for name in ("rank-1", "rank-0"):
            with self.subTest(name=name):
                self.lost(name)

    def test_a_lost_rank_0_ends_a_job_of_srun_and_it_resumes(self):
        self.lost("srun-rank-0")

    def test_another_lost_rank_does_not_end_a_job_of_srun(self):
        job = self.check("srun-rank-1", "COMPLETED", 0, 0)
        self.assertIn("task 1: Killed", job.said)
        self.measured_once(job)

    def lost(self, name):
        job = JOBS[name]
        state, code, restarts = job.ended()
        if state == "COMPLETED":
            # Rank 0 was faster than the launcher, which kills it a second later.
            self.assertEqual(restarts, 1, job.said)
            self.measured_once(job)
        else:
            # Nobody was left to write exit_status.json: the script does not know that it may go on.
            self.assertEqual((state, code, restarts, job.exit_code), ("FAILED", 1, 0, None),
                             job.said)
            self.resume(job)

    def test_a_node_that_fails_costs_no_result(self):
        job = self.check("node", "COMPLETED", 0, 1)
        self.assertGreater(sum(job.events("finished").values()), self.before)
        self.measured_once(job)

    def resume(self, job):
        before = sum(job.events("finished").values())
        job.submit()
        self.assertEqual(job.ended()[:2], ("COMPLETED", 0), job.said)
        self.assertGreater(sum(job.events("finished").values()), before)
        self.measured_once(job)


class EndingTest(SlurmTest):
    def test_the_exit_code_decides(self):
        for code, (state, ends, restarts) in ENDINGS.items():
            with self.subTest(code=code):
                job = self.check(f"ends-{code}", state, ends, restarts)
                self.assertEqual(len(job.calls), 1 + restarts, job.said)

    def test_a_job_that_was_cut_off_is_not_queued_again(self):
        job = JOBS["cut"]
        state, code, restarts = job.ended()
        self.assertEqual((state, restarts), ("FAILED", 0), job.said)
        self.assertNotEqual(code, 0, job.said)

    def test_a_job_is_queued_again_only_where_that_was_asked_for(self):
        self.check("never", "FAILED", 75, 0)

    def test_a_job_is_queued_again_at_most_so_often(self):
        self.check("too-often", "FAILED", 75, 2)

    def test_a_job_that_gains_nothing_is_not_queued_again(self):
        self.check("in-vain", "FAILED", 75, 1)

    def test_bad_input_ends_with_3(self):
        for name in ("bad", "then-bad"):
            job = self.check(name, "FAILED", 3, 0)
            self.assertIn("space.json", job.said)
            self.assertEqual(job.read("trained"), "")


class TimeTest(SlurmTest):
    def test_the_time_that_is_left_is_asked_of_slurm(self):
        # Slurm 22.05 sets no SLURM_JOB_END_TIME.
        (words,) = self.check("warned", "FAILED", 75, 0).calls
        self.assertTrue(0 < seconds(jobs.batch_jobs.time_limit_of(words)) <= 60, words)

    def test_the_warning_before_the_end_reaches_the_program(self):
        self.check("warned", "FAILED", 75, 0)
        self.assertEqual(JOBS["warned"].exit_code, 75)

        for launcher in ("mpirun", "srun"):
            with self.subTest(launcher=launcher):
                job = self.check(f"warned-{launcher}", "FAILED", 75, 0)
                self.assertIn("passing the signal on", job.said)
                self.assertTrue(job.best, job.said)

    def test_short_jobs_find_what_a_long_one_finds(self):
        whole = self.check("in-one", "COMPLETED", 0, 0)
        job = JOBS["in-pieces"]
        state, code, restarts = job.ended()
        self.assertEqual((state, code), ("COMPLETED", 0), job.said)
        self.assertGreaterEqual(restarts, 1, job.said)
        self.assertEqual(job.best, whole.best)
        self.assertEqual(job.events("finished"), whole.events("finished"))
        self.assertEqual(len(whole.events("finished")), 40)
        self.measured_once(job)
        self.measured_once(whole)


class LauncherTest(SlurmTest):
    def test_srun_starts_the_ranks_too(self):
        job = self.check("by-srun", "COMPLETED", 0, 0)
        self.assertEqual(job.best, "z0_gas2_tmbspg2")


class ShippedTest(SlurmTest):
    def test_it_takes_a_space_and_options_and_asks_for_what_sbatch_says(self):
        job = self.check("shipped", "COMPLETED", 0, 0)
        optimal = json.loads(job.read("autotuning_results/optimal.json"))
        self.assertEqual(optimal["metric"], "latency")
        self.assertRegex(job.said, "time limit 0:0[34]:")


class ThenTrainTest(SlurmTest):
    def test_the_training_gets_the_answer(self):
        job = self.check("then-trained", "COMPLETED", 0, 0)
        self.assertIn("ds_config_optimal.json", job.read("trained"), job.said)

    def test_an_incomplete_search_trains_nothing(self):
        job = self.check("then-late", "FAILED", 75, 0)
        self.assertEqual(job.read("trained"), "", job.said)


class LeftTest(SlurmTest):
    def test_no_job_leaves_a_process(self):
        to = JOBS["node"].place.cluster
        to.wait([job.number for job in JOBS.values()], 200)
        left = {
            process: command
            for process, command in to.processes().items()
            if "slurm" not in command
        }
        self.assertEqual(left, {})


def run_status(job, *options):
    return subprocess.run([PROGRAM, "status", *options],
                          cwd=job.path,
                          text=True,
                          capture_output=True,
                          check=True).stdout


def status_of(job):
    return json.loads(run_status(job, "--format", "json"))


def seconds(text):
    """Of the durations that --time-limit takes."""
    days, _, clock = text.rpartition("-")
    if clock.isdigit() or clock.endswith("s"):
        return int(clock.rstrip("s"))
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return total + 86400 * int(days or 0)


def load_tests(loader, *_):
    # Jobs that wait for a fault come first, and a look at what is left comes last.
    cases = (FaultTest, EndingTest, TimeTest, LauncherTest, ShippedTest, ThenTrainTest, LeftTest)
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


def main():
    reason = cluster.missing()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)


if __name__ == "__main__":
    main()
