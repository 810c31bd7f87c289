#!/usr/bin/env python3
"""Collectives over an emulated slow link beside the link's limit and gloo's.

    python3 -B mpi_tests/bench/two_hosts.py --rate 400 [--ranks 1,2] [--shifts 16,26]
        [--python build/engine/bin/python]

Two network namespaces are two hosts. Needs root, iproute2 and build/release/bench/collectives_bench.
The rate is in Mbit/s, `--ranks` are those of a host. `--python` has PyTorch, for gloo's times.

A host must send what the ranks of the other one need: of a reduction that sums in the order of the
ranks each rank's part by itself, of an all-gather each part once. Bytes over rate are the limit.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HOSTS = ("dstune-a", "dstune-b")
LINKS = ("dstune-va", "dstune-vb")
ADDRESSES = ("10.79.0.1", "10.79.0.2")
BUDGET_S = 2.0


def call(*words, **options):
    return subprocess.run(words, check=True, **options)


def hosts_down():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL, check=False)


def hosts_up(rate):
    hosts_down()
    for host in HOSTS:
        call("ip", "netns", "add", host)
    call("ip", "link", "add", LINKS[0], "type", "veth", "peer", "name", LINKS[1])
    for host, link, address in zip(HOSTS, LINKS, ADDRESSES):
        call("ip", "link", "set", link, "netns", host)
        call("ip", "-n", host, "addr", "add", f"{address}/24", "dev", link)
        call("ip", "-n", host, "link", "set", "lo", "up")
        call("ip", "-n", host, "link", "set", link, "up")
        call("ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", link, "root", "tbf",
             "rate", f"{rate}mbit", "burst", "256kb", "latency", "50ms")


def bytes_over_link(kind, size, ranks):
    """What a host sends: `size` bytes in all, `ranks` a host."""
    gathered = size / 2
    # Each of this host's ranks, half of its data.
    scattered = ranks * size / 2
    return {"all_reduce": scattered + gathered, "reduce_scatter": scattered,
            "all_to_all": scattered, "all_gather": gathered}[kind]


def ours(bench, ranks, shifts):
    """Microseconds by kind and size."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as agent:
        agent.write("#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done; shift\n"
                    f'exec ip netns exec {HOSTS[1]} unshare --uts bash -c "hostname hostb; $*"\n')
    os.chmod(agent.name, 0o755)
    hosts = ",".join(f"{address}:{ranks}" for address in ADDRESSES)
    words = ["mpirun", "--mca", "plm_rsh_agent", agent.name, "--host", hosts,
             "--mca", "btl_tcp_if_include", "10.79.0.0/24",
             "--mca", "oob_tcp_if_include", "10.79.0.0/24",
             "--mca", "btl", "self,vader,tcp", "--bind-to", "none", bench, *map(str, shifts)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_mpi_yield_when_idle="1")
    output = call("ip", "netns", "exec", HOSTS[0], "unshare", "--uts", "bash", "-c",
                  'hostname hosta; exec "$@"', "x", *words, env=environment, text=True,
                  stdout=subprocess.PIPE).stdout
    os.unlink(agent.name)
    found = re.findall(r"^(\w+) +(\d+) bytes +median +([\d.]+) us", output, re.M)
    return {(kind, int(size)): float(us) for kind, size, us in found if kind != "exchange"}


def time_gloo(shifts):
    """Inside a rank of gloo's: prints a line a collective and size."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    for shift in range(shifts[0], shifts[1] + 1, 2):
        count = (1 << shift) // 4
        whole = torch.ones(count)
        other = torch.ones(count)
        part = torch.ones(count // size)
        runs = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_gather": lambda: dist.all_gather(list(other.chunk(size)), part),
            "all_to_all": lambda: dist.all_to_all_single(other, whole),
        }
        for kind, run in runs.items():
            try:
                run()
            except RuntimeError as error:
                print(f"{kind}: gloo has none: {error}", file=sys.stderr)
                continue
            times = []
            spent = torch.zeros(1)
            while len(times) < 3 or (spent.item() < BUDGET_S and len(times) < 200):
                dist.barrier()
                began = time.monotonic()
                run()
                mine = torch.tensor([time.monotonic() - began])
                dist.all_reduce(mine, dist.ReduceOp.MAX)
                times.append(mine.item())
                spent += mine
            if rank == 0:
                print(f"{kind} {1 << shift} {1e6 * sorted(times)[len(times) // 2]}", flush=True)


def gloo(python, ranks, shifts):
    processes = []
    for number in range(2 * ranks):
        host = number // ranks
        environment = dict(os.environ, MASTER_ADDR=ADDRESSES[0], MASTER_PORT="29611",
                           GLOO_SOCKET_IFNAME=LINKS[host], RANK=str(number),
                           WORLD_SIZE=str(2 * ranks), OMP_NUM_THREADS="1")
        processes.append(subprocess.Popen(
            ["ip", "netns", "exec", HOSTS[host], python, "-B", __file__, "--gloo-rank",
             "--shifts", ",".join(map(str, shifts))],
            env=environment, text=True, stdout=subprocess.PIPE))
    output = processes[0].communicate()[0]
    for process in processes[1:]:
        process.communicate()
    rows = (line.split() for line in output.splitlines())
    return {(kind, int(size)): float(us) for kind, size, us in rows}


def show(rate, ranks, mine, theirs):
    bytes_per_us = rate / 8
    print(f"\n{ranks} rank(s) a host, {rate} Mbit/s, load {os.getloadavg()[0]:.1f}\n")
    print("| collective | bytes | the link's limit | ours | of the limit | gloo |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (kind, size), us in mine.items():
        limit = bytes_over_link(kind, size, ranks) / bytes_per_us
        other = theirs.get((kind, size))
        print(f"| {kind} | {size} | {limit / 1e3:.2f} ms | {us / 1e3:.2f} ms | "
              f"{100 * limit / us:.0f} % | {f'{other / 1e3:.2f} ms' if other else '–'} |",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = lambda text: [int(one) for one in text.split(",")]
    parser.add_argument("--rate", type=int, default=400)
    parser.add_argument("--ranks", type=numbers, default=[1, 2])
    parser.add_argument("--shifts", type=numbers, default=[16, 26])
    parser.add_argument("--bench", default="build/release/bench/collectives_bench")
    parser.add_argument("--python")
    parser.add_argument("--gloo-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gloo_rank:
        return time_gloo(options.shifts)
    try:
        hosts_up(options.rate)
        for ranks in options.ranks:
            mine = ours(os.path.abspath(options.bench), ranks, options.shifts)
            theirs = gloo(options.python, ranks, options.shifts) if options.python else {}
            show(options.rate, ranks, mine, theirs)
    finally:
        hosts_down()


if __name__ == "__main__":
    main()
