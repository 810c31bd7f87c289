"""A Slurm of its own for tests: slurmctld and a few slurmd on this machine.

    with Cluster(nodes=2) as cluster:
        job = cluster.submit(["job.sbatch", "argument"], folder)
        state = cluster.wait([job])[job]

Munge has a key and a socket of its own, and ports are free ones, so that several clusters run
beside each other and beside a Slurm of the system. All is in one folder, which goes at the end.
It needs root: slurmd starts jobs as the user that submitted them.
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import environment

START_LIMIT_S = 30
# Names of the states that a job does not leave by itself (squeue(1), "JOB STATE CODES").
FINAL = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
         "TIMEOUT")


def missing():
    """Why there can be no cluster here, else ""."""
    if os.geteuid() != 0:
        return "a cluster of one's own is started by root"
    lacking = [
        name for name in ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
        if not program(name)
    ]
    if lacking:
        return f"{', '.join(lacking)}: missing; scripts/setup.sh --slurm installs Slurm"
    return ""


def program(name):
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def wait_until(condition, limit_s, every_s=0.2):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(every_s)
    return None


class Cluster:
    def __init__(self, nodes=2, partitions=None):
        """`partitions`: name to numbers of nodes, the default one first; without it "all"."""
        self.nodes = [f"node{number}" for number in range(nodes)]
        self.partitions = partitions or {"all": range(nodes)}
        self.folder = None
        self.daemons = {}
        self.guard = None
        self.hurried = set()

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dstune-slurm-"))
        # It ends what is left, also where this process is killed.
        self.guard = subprocess.Popen(
            [sys.executable, "-B", environment.__file__,
             str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if "slurmctld" in self.daemons:
                self._cancel_all()
            for name in reversed(list(self.daemons)):
                self.stop(name)
        finally:
            self.guard.stdin.close()
            self.guard.wait()

    @property
    def variables(self):
        # Jobs of another Slurm in which the test itself may run are none of this one.
        kept = {
            name: value
            for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))
        }
        return {**kept, "SLURM_CONF": f"{self.folder}/slurm.conf"}

    def command(self, *words, **options):
        """What a program of Slurm's answers."""
        options = {"env": self.variables, "cwd": self.folder, **options}
        return subprocess.run([program(words[0]), *words[1:]],
                              text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL,
                              timeout=60,
                              check=False,
                              **options)

    def submit(self, words, folder, variables=None):
        """The number of the job that `sbatch WORDS` in `folder` makes."""
        ended = self.command("sbatch",
                             *words,
                             cwd=folder,
                             env={**self.variables, **(variables or {})})
        found = re.search(r"Submitted batch job (\d+)", ended.stdout)
        if not found:
            raise RuntimeError(f"sbatch {' '.join(words)}: {ended.stdout}")
        return int(found[1])

    def job(self, number):
        """The fields of `scontrol show job`, {} where it is not known."""
        said = self.command("scontrol", "--oneliner", "show", "job", str(number)).stdout
        return dict(re.findall(r"(?:^| )([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=|$)", said,
                               flags=re.M))

    def wait(self, numbers, limit_s=120):
        """The fields of jobs that have ended, by number. One that goes back to the queue begins at
        once: Slurm itself would let it wait for two minutes."""
        ended = {}

        def all_ended():
            for number in set(numbers) - set(ended):
                fields = self.job(number)
                state = fields.get("JobState", "").split(" ")[0]
                if state in FINAL:
                    ended[number] = fields
                elif state == "PENDING":
                    self._hurry(number, fields)
            return len(ended) == len(set(numbers))

        if not wait_until(all_ended, limit_s):
            late = {number: self.job(number) for number in set(numbers) - set(ended)}
            raise RuntimeError(f"jobs do not end: {late}")
        return ended

    def cancel(self, number, *options):
        self.command("scancel", *options, str(number))

    def fail(self, node):
        """The node is gone, as where a host breaks down: its daemon, and all that runs there."""
        self.kill(f"slurmd-{node}")
        for process in self.processes(f"SLURMD_NODENAME={node}"):
            environment.kill(process)
        self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def repair(self, node):
        self._start_node(node)
        self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def kill(self, name):
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def stop(self, name):
        daemon = self.daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def logs(self):
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-2000:]}"
                         for path in sorted(self.folder.glob("*.log")))

    def processes(self, *variables):
        """Commands by process id of all that has this cluster's slurm.conf, and these variables,
        too. The daemons themselves are left out."""
        daemons = {daemon.pid for daemon in self.daemons.values()}
        found = environment.processes_of(self.folder, *variables).items()
        return {process: command for process, command in found if process not in daemons}

    def _start(self):
        # Munge's socket is for everybody.
        self.folder.chmod(0o755)
        environment.write_configuration(self.folder, self.nodes, self.partitions)
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        key = munge / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self._daemon("munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
                     f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                     f"--seed-file={munge}/seed", "--num-threads=2")
        self._wait_for("munged", (munge / "socket").exists)
        self._daemon("slurmctld", "-D", "-c", "-f", str(self.folder / "slurm.conf"))
        for node in self.nodes:
            self._start_node(node)
        self._wait_for("slurmctld", self._all_idle)

    def _all_idle(self):
        said = self.command("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines()
        return set(said) == {f"{node} idle" for node in self.nodes}

    def _start_node(self, node):
        self._daemon(f"slurmd-{node}", "-D", "-N", node, "-f", str(self.folder / "slurm.conf"))

    def _daemon(self, name, *words):
        with (self.folder / f"{name}.said.log").open("ab") as said:
            self.daemons[name] = subprocess.Popen([program(name.split("-")[0]), *words],
                                                  stdin=subprocess.DEVNULL,
                                                  stdout=said,
                                                  stderr=said,
                                                  cwd=self.folder,
                                                  env=self.variables,
                                                  start_new_session=True)

    def _wait_for(self, what, condition):
        def is_there():
            gone = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
            if gone:
                raise RuntimeError(f"{', '.join(gone)} ended:\n{self.logs()}")
            return condition()

        if not wait_until(is_there, START_LIMIT_S):
            raise RuntimeError(f"{what} is not ready after {START_LIMIT_S} s:\n{self.logs()}")

    def _hurry(self, number, fields):
        # A credential must be younger than the one that was revoked, and both count in seconds.
        restart = number, fields.get("Restarts")
        if fields.get("Reason") == "BeginTime" and restart not in self.hurried:
            self.hurried.add(restart)
            self.command("scontrol", "update", f"JobId={number}", "StartTime=now+2seconds")

    def _cancel_all(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.command("scancel", "--user=root")
            wait_until(lambda: not self.command("squeue", "-h", "-o", "%i").stdout.strip(), 15)
