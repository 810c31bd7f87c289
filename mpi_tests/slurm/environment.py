"""The configuration of a cluster of tests, and the processes that have it."""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import time

# slurm.conf(5). Nodes are this host, with more cores than it has, so that jobs run side by side.
# No accounting, no cgroups, no binding: a container has none of them. Each node has a TmpFS of its
# own, for files of srun's PMIx that would be in the way of another's.
GENERAL = """
ClusterName=dstune
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
SlurmdTimeout=10
OverTimeLimit=0
KillWait=5
CompleteWait=0
MinJobAge=3600
PropagateResourceLimits=NONE
"""


def write_configuration(folder, nodes, partitions):
    """`partitions`: name to numbers of nodes; the first is the default."""
    host = socket.gethostname().split(".")[0]
    control_port, *ports = free_ports(1 + len(nodes))
    text = GENERAL.format(host=host, folder=folder, control_port=control_port)
    for name, port in zip(nodes, ports):
        text += (f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 "
                 "RealMemory=1000 State=UNKNOWN\n")
        (folder / f"tmp-{name}").mkdir()
    default = "YES"
    for name, numbers in partitions.items():
        text += (f"PartitionName={name} Nodes={','.join(nodes[number] for number in numbers)} "
                 f"Default={default} State=UP MaxTime=INFINITE DefaultTime=INFINITE\n")
        default = "NO"
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    # slurmd asks this file which version of cgroups it has.
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="utf-8")


def free_ports(count):
    """Ports that nobody listens at, below those that the system gives to whoever connects."""
    with contextlib.ExitStack() as held:
        found = []
        while len(found) < count:
            listener = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("", random.randint(15000, 32000)))
                found.append(listener.getsockname()[1])
        return found


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def processes_of(folder, *variables):
    marks = [name.encode() for name in (f"SLURM_CONF={folder}/slurm.conf", *variables)]
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            present = (entry / "environ").read_bytes().split(b"\0")
            if all(mark in present for mark in marks):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(
                    b"\0", b" ").decode().strip()
    return found


if __name__ == "__main__":
    # The guard: its parent is gone, or has done its part.
    sys.stdin.read()
    while left := processes_of(sys.argv[1]):
        for process_id in left:
            kill(process_id)
        time.sleep(0.1)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
