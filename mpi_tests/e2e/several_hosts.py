#!/usr/bin/env python3
"""Jobs on two hosts, which are network namespaces of this machine: how each of them ends.

    several_hosts.py PROGRAM MPIRUN [--all | --seeds 40]

--all also cuts the link between the hosts, and compares trainings across hosts with those on one.
--seeds N runs N jobs instead, each with a fault that is drawn from its seed.

Open MPI 4.1's `mpirun --enable-recovery` never ends on several hosts where a rank was lost, or where ranks
return another code than 0. Open MPI 5 and MPICH end a job whose rank is lost; then the same command must
complete it. Code 77, with the reason, where there is no root, no `ip` or another MPI.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SPACE = {
    "dstune": {"model": {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 211,
                         "max_positions": 64},
               "sequence_length": 16, "workload": {"type": "synthetic", "step_time_s": 0.1},
               "resources": {"num_gpus": 1}, "trial_budget_s": 3},
    "autotuning": {"enabled": True, "tuner_type": "gridsearch", "tuner_early_stopping": 0},
    "train_micro_batch_size_per_gpu": [1, 2, 3, 4], "gradient_accumulation_steps": [1, 2],
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": [0, 1, 2]},
}
END_LIMIT_S = 60


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def launcher_of(mpirun):
    """"Open MPI 4", "Open MPI 5", "MPICH"; None where it is another one."""
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    if "HYDRA" in said:
        return "MPICH"
    # mpiexec of Open MPI 4 calls itself OpenRTE.
    found = re.search(r"\((?:Open MPI|OpenRTE)\) ([45])\.", said)
    return f"Open MPI {found[1]}" if found else None


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Hosts:
    """Two namespaces with a link between them; mpirun starts in the first and reaches the second by an agent."""

    def __init__(self, folder, launcher):
        self.launcher = launcher
        self.names = [f"dstune{os.getpid()}{letter}" for letter in "ab"]
        self.addresses = ["10.77.0.1", "10.77.0.2"]
        self.agent = folder / "agent"
        first, second = self.names
        self.agent.write_text("#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done; shift\n"
                              f'exec ip netns exec {second} unshare --uts bash -c "hostname {second}; $*"\n')
        self.agent.chmod(0o755)

    def __enter__(self):
        first, second = self.names
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            run("ip", "link", "add", f"v{first}", "netns", first, "type", "veth", "peer", "name", f"v{second}", "netns",
                second)
            for name, address in zip(self.names, self.addresses):
                run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", f"v{name}")
                run("ip", "-n", name, "link", "set", "lo", "up")
                run("ip", "-n", name, "link", "set", f"v{name}", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            skip(f"no network namespaces: {error.stderr.decode().strip()}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def cut(self, seconds):
        """The link is down for so long; meanwhile this waits."""
        first = self.names[0]
        run("ip", "-n", first, "link", "set", f"v{first}", "down")
        time.sleep(seconds)
        run("ip", "-n", first, "link", "set", f"v{first}", "up")

    def command(self, mpirun, ranks, words):
        places = ",".join(f"{address}:{count}" for address, count in zip(self.addresses, ranks) if count)
        subnet = "10.77.0.0/24"
        # Of a host that mpirun itself is on, Open MPI 5 counts fewer slots than are named.
        even = f"ppr:{ranks[0]}:node" if len({count for count in ranks if count}) == 1 else "slot"
        links = ["--mca", "btl_tcp_if_include", subnet, "--bind-to", "none"]
        options = {
            "Open MPI 4": ["--mca", "plm_rsh_agent", str(self.agent), "--host", places, "--enable-recovery", *links,
                           "--mca", "btl", "self,vader,tcp", "--mca", "oob_tcp_if_include", subnet],
            "Open MPI 5": ["--prtemca", "plm_ssh_agent", str(self.agent), "--host", places, *links,
                           "--map-by", f"{even}:oversubscribe", "--mca", "btl", "self,sm,tcp", "--mca", "pml", "ob1"],
            "MPICH": ["-launcher", "ssh", "-launcher-exec", str(self.agent), "-hosts", places, "-iface",
                      f"v{self.names[0]}", "-localhost", self.addresses[0]],
        }[self.launcher]
        options += ["-np", str(sum(ranks))]
        return ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "bash", "-c",
                f'hostname {self.names[0]}; exec "$@"', "-", mpirun, *options, *words]


# Of the launchers' variables, those that say a process's rank.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


def process_of(rank, results):
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().split(b"\0")
            if results.encode() in words and any(f"{name}={rank}".encode() in variables for name in RANKS):
                return int(entry.name)
    return None


def wait_for(condition, limit_s):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    return None


def try_job(hosts, folder, program, mpirun, name, code, options=(), ranks=(2, 2), space="space.json", fault=None):
    """One job; `fault`: (rank, signal), or ("cut", seconds) of the link, once something has run. Returns what is wrong."""
    results = f"results-{name}"
    command = hosts.command(mpirun, ranks, [program, "--no-progress", "--results-dir", results, "--exps-dir",
                                            f"exps-{name}", *options, space])
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                   "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with (folder / f"{name}.log").open("wb") as log:
        job = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                               start_new_session=True)
        try:
            if fault:
                ran = wait_for(lambda: list((folder / results).glob("*/metrics.json")), END_LIMIT_S)
                process = None if fault[0] == "cut" else process_of(fault[0], results)
                if not ran or (process is None and fault[0] != "cut"):
                    return "nothing ran"
                if fault[0] == "cut":
                    hosts.cut(fault[1])
                else:
                    os.kill(process, fault[1])
            began = time.monotonic()
            job.wait(END_LIMIT_S + 30)
            print(f"{name}: ended {time.monotonic() - began:.1f} s later", flush=True)
        except subprocess.TimeoutExpired:
            return "mpirun does not end"
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    if wait_for(lambda: not any(process_of(rank, results) for rank in range(sum(ranks))), 10) is None:
        return "a rank is left"
    if code is None:
        return None
    if fault and fault[0] != "cut" and hosts.launcher != "Open MPI 4":
        if not (folder / results / "ds_config_optimal.json").exists():
            return "no answer so far is on disk"
        with (folder / f"{name}.log").open("ab") as log:
            again = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=END_LIMIT_S,
                                   stdin=subprocess.DEVNULL, check=False)
        code = 0
        if again.returncode != 0:
            return f"the same command ends with {again.returncode}"
    status = json.loads((folder / results / "exit_status.json").read_text(encoding="utf-8"))
    return None if status["exit_code"] == code else f"exit_status.json says {status}, not {code}"


TRAININGS = {
    "gpt2-z3": {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1000}},
    "llama-bf16-z2": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 50000}},
    "gpt2-z3-offload": {"gradient_accumulation_steps": 2,
                        "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2,
                                              "offload_optimizer": {"device": "cpu"}}},
}
LLAMA = {"family": "llama", "hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128,
         "vocab_size": 211, "max_positions": 64}


def training_space(name, nodes):
    return {**SPACE, "gradient_accumulation_steps": 1, **TRAININGS[name], "train_micro_batch_size_per_gpu": [2],
            "dstune": {**SPACE["dstune"], "model": LLAMA if "llama" in name else SPACE["dstune"]["model"],
                       "workload": {"type": "transformer"}, "trial_budget_s": 2,
                       "resources": {"num_gpus": 4 // nodes, "num_nodes": nodes}}}


def losses_of(folder, results):
    paths = list((folder / results).glob("*/metrics.json"))
    return json.loads(paths[0].read_text(encoding="utf-8"))["losses"] if paths else []


def compare_training(hosts, folder, program, mpirun, name):
    """The same training on one host of four ranks, and on two of two: what differs."""
    found = {}
    for nodes in (1, 2):
        (folder / "training.json").write_text(json.dumps(training_space(name, nodes)), encoding="utf-8")
        job = f"{name}-{nodes}"
        wrong = try_job(hosts, folder, program, mpirun, job, 0, ranks=(4, 0) if nodes == 1 else (2, 2),
                        space="training.json")
        if wrong:
            return f"on {nodes} hosts: {wrong}"
        found[nodes] = losses_of(folder, f"results-{job}")
    pairs = list(zip(found[1], found[2]))
    if len(pairs) < 5:
        return f"only {len(pairs)} losses"
    print(f"{name}: {len(pairs)} losses from {pairs[0][0]:.6f} to {pairs[-1][0]:.6f}", flush=True)
    return next((f"losses differ: {one} and {two}" for one, two in pairs if one != two), None)


def faults_by_seed(number):
    """A fault, and the code that exit_status.json has after it."""
    draw = random.Random(number)
    ranks = draw.choice([(2, 2), (2, 1), (3, 1), (2, 3)])
    kind = draw.choice(["kill", "kill", "stop", "segv", "abort", "cut", "none"])
    rank = draw.randrange(sum(ranks))
    if kind == "none":
        return {"ranks": ranks, "code": 0}
    if kind == "cut":
        return {"ranks": ranks, "code": 0, "fault": ("cut", draw.choice([2, 8, 15, 40]))}
    sent = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "segv": signal.SIGSEGV, "abort": signal.SIGABRT}[kind]
    return {"ranks": ranks, "code": 75 if rank == 0 else 0, "fault": (rank, sent)}


def main():
    program, mpirun = map(os.path.abspath, sys.argv[1:3])
    options = sys.argv[3:]
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        skip("hosts are made by root, with ip and unshare")
    launcher = launcher_of(mpirun)
    if launcher is None:
        skip("this is about Open MPI 4 and 5, and MPICH")
    cases = [{"name": "bad-input", "code": None, "space": "bad.json"},
             {"name": "time-limit", "code": 75, "options": ("--time-limit", "4s")},
             {"name": "a-rank-is-killed", "code": 0, "fault": (3, signal.SIGKILL)},
             {"name": "rank-0-is-killed", "code": 75, "fault": (0, signal.SIGKILL), "ranks": (3, 1)},
             {"name": "rank-0-is-stopped", "code": 75, "fault": (0, signal.SIGSTOP)}]
    trainings = []
    if options[:1] == ["--all"]:
        cases += [{"name": f"cut-{seconds}", "code": 0, "fault": ("cut", seconds)} for seconds in (8, 40)]
        trainings = list(TRAININGS)
    elif options[:1] == ["--seeds"]:
        cases = [{"name": f"seed-{number}", **faults_by_seed(number)} for number in range(1, int(options[1]) + 1)]
    failures = []
    with tempfile.TemporaryDirectory(prefix="dstune-hosts-") as name:
        folder = pathlib.Path(name)
        (folder / "space.json").write_text(json.dumps(SPACE), encoding="utf-8")
        (folder / "bad.json").write_text('{"bad":', encoding="utf-8")
        with Hosts(folder, launcher) as hosts:
            for case in cases:
                wrong = try_job(hosts, folder, program, mpirun, **case)
                if wrong:
                    failures.append(f"{case['name']}: {wrong}")
                    print(failures[-1], case)
                    print((folder / f"{case['name']}.log").read_text(errors="replace")[-3000:], flush=True)
            for training in trainings:
                wrong = compare_training(hosts, folder, program, mpirun, training)
                if wrong:
                    failures.append(f"{training}: {wrong}")
                    print(failures[-1], flush=True)
    print(f"{len(failures)} of {len(cases) + len(trainings)} ended wrongly")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
