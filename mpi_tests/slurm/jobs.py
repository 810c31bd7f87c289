"""The jobs of slurm_test.py. Each has a folder of its own; all go to one cluster."""
import pathlib
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import batch_jobs  # noqa: E402
import cluster  # noqa: E402

# Both nodes are one host, so the names of mpirun's shared memory would be the same on both.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo", "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1"
}
TWO_RANKS = ("--nodes", "2", "--tasks-per-node", "1", "--cpus-per-task", "1")
# 40 experiments of 0.9 s on two ranks, and runs of the finals: about 25 s.
LONG_SPACE = {
    **batch_jobs.SPACE, "train_micro_batch_size_per_gpu": list(range(1, 21)),
    "dstune": {**batch_jobs.SPACE["dstune"], "workload": {"type": "synthetic", "step_time_s": 0.1}}
}
# Long enough for a test to come and do something to it; the job goes on with the short one.
ENDLESS_SPACE = {**LONG_SPACE, "train_micro_batch_size_per_gpu": list(range(1, 100))}
SHORT_SPACE = {**LONG_SPACE, "train_micro_batch_size_per_gpu": list(range(1, 11))}
BY_SRUN = {"LAUNCH": "srun --mpi=pmix"}


class Place:
    """Where jobs are: the program that is tested, the folder of their folders, and the cluster."""
    def __init__(self, program, folder, to):
        self.program = program
        self.folder = pathlib.Path(folder)
        self.cluster = to


class Job(batch_jobs.JobFolder):
    def __init__(self, place, name, *options, space=None, play=(), variables=None):
        super().__init__(place.folder / name, space)
        self.place = place
        self.make_script(place.program, "slurm", *TWO_RANKS, "--job-name", name, *options)
        self.variables = dict(variables or {})
        if play:
            self.play(*play)
            self.variables.update(DSTUNE_MPI=str(self.played), LAUNCH="env")
        self.words = ["job.slurm"]
        self.number = None

    def submit(self):
        self.number = self.place.cluster.submit(self.words, self.path,
                                                {**ENVIRONMENT, **self.variables})
        return self

    def ended(self, limit_s=200):
        """(the job's state, its exit code, how often it was queued again)."""
        fields = self.place.cluster.wait([self.number], limit_s)[self.number]
        return fields["JobState"], int(fields["ExitCode"].split(":")[0]), int(fields["Restarts"])

    def until(self, kind, count=1, limit_s=60):
        """Waits for so many events of a kind."""
        if not cluster.wait_until(lambda: sum(self.events(kind).values()) >= count, limit_s):
            raise AssertionError(f"no {kind}:\n{self.said}")

    def process_of(self, rank):
        """The process id of a rank of dstune-mpi."""
        for variable in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK"):
            found = self.place.cluster.processes(f"SLURM_JOB_ID={self.number}",
                                                 f"{variable}={rank}")
            for process, command in found.items():
                if command.startswith(self.place.program):
                    return process
        raise AssertionError(f"rank {rank} is not there:\n{self.said}")

    @property
    def said(self):
        return "".join(path.read_text(errors="replace") for path in sorted(self.path.glob("*.log")))


# Jobs to which something is done while they run.
FAULTS = ("srun-rank-1", "srun-rank-0", "cancelled", "rank-0", "rank-1", "node")
# The loss of another rank than 0 does not end a job that srun started.
LIVES_ON = ("srun-rank-1",)


def submit_all(place, exit_codes):
    """Jobs by name."""
    again = ("--requeue", "2")
    then_train = ("--then-train", "--tune-time", "5m")
    jobs = {}

    def add(name, *options, **more):
        jobs[name] = Job(place, name, *options, **more)

    for name in FAULTS:
        options = ("--queue", "failing") if name == "node" else ()
        add(name,
            *options,
            *again,
            space=LONG_SPACE if name in LIVES_ON else ENDLESS_SPACE,
            variables=BY_SRUN if name.startswith("srun") else {})
    for code in exit_codes:
        add(f"ends-{code}", *again, play=(f"{code} 1", "0 1"))
    add("cut", *again, play=("137 1 cut", "0 1"))
    add("never", play=("75 1",))
    add("too-often", *again, play=("75 1",))
    add("in-vain", "--requeue", "5", play=("75 1", "75 0", "0 1"))
    add("bad", *again)
    add("then-bad", *then_train, *again)
    add("then-trained", *then_train)
    add("then-late", *then_train, play=("75 1",))
    add("by-srun", variables=BY_SRUN)
    add("warned", "--time-limit", "1m", play=("75 1 wait",))
    # These do not know Slurm's limit, and end by its warning alone.
    for launcher, variables in (("mpirun", {}), ("srun", BY_SRUN)):
        add(f"warned-{launcher}",
            "--time-limit",
            "1m",
            space=ENDLESS_SPACE,
            variables={"TIME_LIMIT": "1h", **variables})
    add("in-pieces", "--time-limit", "1m", "--reserve", "45s", "--requeue", "9", space=LONG_SPACE)
    add("in-one", "--time-limit", "1h", space=LONG_SPACE)
    for name in ("bad", "then-bad"):
        jobs[name].write("space.json", "{")
    add("shipped", variables={"DSTUNE_MPI": place.program})
    jobs["shipped"].words = [
        "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=5",
        str(SCRIPTS / "slurm" / "tune.sbatch"), "space.json", "--metric", "latency"
    ]
    for job in jobs.values():
        job.submit()
    return jobs
