#!/usr/bin/env python3
"""Collectives over an emulated slow link beside the link's limit and gloo's.

    python3 -B mpi_tests/bench/two_hosts.py --rate 400 [--ranks 1,2] [--shifts 16,26]
        [--python build/engine/bin/python]
    python3 -B mpi_tests/bench/two_hosts.py --count --rate 200mbit --python build/engine/bin/python
        [--hosts 4] [--ranks 1]

Network namespaces are the hosts. Needs root, iproute2 and build/release/bench/collectives_bench.
The rate is in Mbit/s, `--ranks` are those of a host. `--python` has PyTorch, for gloo's times.

A host must send what the ranks of the other ones need: of a reduction that sums in the order of the
ranks each rank's part by itself, of an all-gather each part once. Bytes over rate are the limit.

`--count` reads what gloo puts on each host's link from the kernel's counters, which depend on no
load, beside the time that the rate would take for it.
"""

import argparse
import os
import pathlib
import re
import sys
import time

sys.dont_write_bytecode = True  # nothing beside the scripts
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts/tools"))
import emulated_hosts as net  # noqa: E402


def bytes_over_link(kind, size, hosts, ranks):
    """What a host sends by the step's own collectives: `size` bytes in all, `ranks` a host."""
    far = (hosts - 1) * size / hosts  # of all slices those of other hosts' ranks
    # Each of this host's ranks sends its part of those.
    scattered = ranks * far
    return {"all_reduce": scattered + far, "reduce_scatter": scattered, "reduce": scattered + far,
            "all_to_all": scattered, "all_gather": far}[kind]


def ours(bench, hosts, ranks, shifts):
    """Microseconds by kind and size."""
    output = net.mpirun(hosts, ranks, bench, *shifts, stdout=net.subprocess.PIPE).stdout
    found = re.findall(r"^(\w+) +(\d+) bytes +median +([\d.]+) us", output, re.M)
    return {(kind, int(size)): float(us) for kind, size, us in found if kind != "exchange"}


def runs_of_gloo(size, ranks):
    """The collectives that DeepSpeed calls, of `size` bytes in all."""
    import torch
    import torch.distributed as dist

    count = size // 4
    whole, other = torch.ones(count), torch.ones(count)
    part = torch.ones(count // ranks)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce": lambda: dist.reduce(whole, 0),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(other, part),
        "all_gather_list": lambda: dist.all_gather(list(other.chunk(ranks)), part),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }


def link_bytes(link):
    """Sent and received so far."""
    folder = pathlib.Path("/sys/class/net") / link / "statistics"
    return [int((folder / f"{way}_bytes").read_text(encoding="ascii")) for way in ("tx", "rx")]


def time_gloo(shifts, budget_s):
    """Inside a rank of gloo's: prints a line a collective and size, with the most bytes that a
    host's link carried one way, and both ways together."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    link = os.environ["GLOO_SOCKET_IFNAME"]
    for shift in range(shifts[0], shifts[1] + 1, 2):
        for kind, run in runs_of_gloo(1 << shift, ranks).items():
            try:
                run()
            except RuntimeError as error:
                print(f"{kind}: gloo has none: {error}", file=sys.stderr)
                continue
            times, counts = [], []
            started = time.monotonic()
            spent_s = 0.0
            # On a busy machine the barriers between take most of the time.
            while len(times) < 3 or (spent_s < budget_s and len(times) < 200):
                dist.barrier()
                before = link_bytes(link)
                began = time.monotonic()
                run()
                ended = time.monotonic()
                counts.append([new - old for old, new in zip(before, link_bytes(link))])
                slowest = torch.tensor([ended - began, ended - started], dtype=torch.float64)
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                times.append(slowest[0].item())
                spent_s = slowest[1].item()
            sent, received = (sorted(one)[len(one) // 2] for one in zip(*counts))
            most = torch.tensor([sent, received], dtype=torch.float64)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            if rank == 0:
                median_us = 1e6 * sorted(times)[len(times) // 2]
                print(f"{kind} {1 << shift} {median_us} {most[0].item()} {most[1].item()}",
                      flush=True)


def gloo(options, ranks):
    """(microseconds, bytes that the busiest host sent, … received) by kind and size."""
    output = net.torch_ranks(options.hosts, ranks, 29611, options.python, "-B",
                             os.path.abspath(__file__), "--gloo-rank", "--budget", options.budget,
                             "--shifts", ",".join(map(str, options.shifts)))
    rows = (line.split() for line in output.splitlines())
    return {(kind, int(size)): tuple(map(float, rest)) for kind, size, *rest in rows}


def title(hosts, ranks, rate):
    return (f"\n{hosts} hosts, {ranks} rank(s) a host, {net.rate_text(rate)}, "
            f"load {os.getloadavg()[0]:.1f}\n")


def show(options, ranks, mine, theirs):
    bytes_per_us = net.bytes_per_s(options.rate) / 1e6
    print(title(options.hosts, ranks, options.rate))
    print("| collective | bytes | the link's limit | ours | of the limit | gloo |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (kind, size), us in mine.items():
        limit = bytes_over_link(kind, size, options.hosts, ranks) / bytes_per_us
        other = theirs.get((kind, size))
        print(f"| {kind} | {size} | {limit / 1e3:.2f} ms | {us / 1e3:.2f} ms | "
              f"{100 * limit / us:.0f} % | {f'{other[0] / 1e3:.2f} ms' if other else '–'} |",
              flush=True)


def show_counts(options, ranks, theirs):
    bytes_per_us = net.bytes_per_s(options.rate) / 1e6
    print(title(options.hosts, ranks, options.rate))
    print("| collective | bytes | sent, of these | received, of these | "
          "time, of these at the rate |\n| --- | --- | --- | --- | --- |")
    for (kind, size), (us, sent, received) in theirs.items():
        print(f"| {kind} | {size} | {sent / size:.3f} | {received / size:.3f} | "
              f"{us * bytes_per_us / size:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = lambda text: [int(one) for one in text.split(",")]
    parser.add_argument("--rate", default="400")
    parser.add_argument("--hosts", type=int, default=2, choices=range(2, len(net.HOSTS) + 1))
    parser.add_argument("--ranks", type=numbers, default=[1, 2])
    parser.add_argument("--shifts", type=numbers, default=[16, 26])
    parser.add_argument("--bench", default="build/release/bench/collectives_bench")
    parser.add_argument("--python")
    parser.add_argument("--budget", type=float, default=2, help="seconds of gloo's each (2)")
    parser.add_argument("--count", action="store_true", help="what gloo puts on the link alone")
    parser.add_argument("--gloo-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gloo_rank:
        return time_gloo(options.shifts, options.budget)
    if options.count and not options.python:
        parser.error("--count needs --python")
    with net.emulated(options.rate, options.hosts):
        for ranks in options.ranks:
            theirs = {}
            if options.python:
                theirs = gloo(options, ranks)
            if options.count:
                show_counts(options, ranks, theirs)
            else:
                show(options, ranks,
                     ours(os.path.abspath(options.bench), options.hosts, ranks, options.shifts),
                     theirs)


if __name__ == "__main__":
    main()
