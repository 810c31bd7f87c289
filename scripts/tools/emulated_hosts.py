"""Network namespaces that stand for hosts, with a link of a given rate between them.

Needs root, iproute2 and the kernel's tbf. Two hosts have one link. Each of more hosts has a link of
its own to a bridge in a namespace of its own. Both directions of a link have the rate.
"""

import contextlib
import os
import subprocess
import sys
import tempfile

HOSTS = tuple(f"dstune-{letter}" for letter in "abcd")
SWITCH = "dstune-switch"
NETWORK = "10.79.0"


def call(*words, **options):
    return subprocess.run(words, check=True, **options)


def link_of(host):
    """The name of a host's link, in the host."""
    return f"{HOSTS[host]}-v"


def address_of(host):
    return f"{NETWORK}.{host + 1}"


def inside(host, *words):
    """The command that runs `words` in the host."""
    return ["ip", "netns", "exec", HOSTS[host], *words]


def rate_text(text):
    """A rate as tc takes it, from 1gbit, 200mbit or a number of Mbit/s."""
    return f"{text}mbit" if str(text).isdigit() else str(text)


def bytes_per_s(text):
    """Of a rate such as 1gbit."""
    rate = rate_text(text).lower()
    for unit, bits in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if rate.endswith(unit):
            return float(rate[:-len(unit)]) * bits / 8
    sys.exit(f"a rate is a number with kbit, mbit or gbit, and not {text}")


def down():
    for name in (*HOSTS, SWITCH):
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def limit(namespace, link, rate):
    call("ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", link, "root", "tbf",
         "rate", rate, "burst", "256kb", "latency", "50ms")


def connect(here, link, there, other_link):
    call("ip", "link", "add", link, "type", "veth", "peer", "name", other_link)
    for namespace, one in ((here, link), (there, other_link)):
        call("ip", "link", "set", one, "netns", namespace)
        call("ip", "-n", namespace, "link", "set", one, "up")


def up(rate, hosts=2):
    """Makes the hosts anew. rate: as rate_text takes it; none: links have no limit."""
    down()
    for host in range(hosts):
        call("ip", "netns", "add", HOSTS[host])
        call("ip", "-n", HOSTS[host], "link", "set", "lo", "up")
    ends = []
    if hosts == 2:
        connect(HOSTS[0], link_of(0), HOSTS[1], link_of(1))
    else:
        call("ip", "netns", "add", SWITCH)
        call("ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", SWITCH, "link", "set", "bridge", "up")
        for host in range(hosts):
            port = f"port-{host}"
            connect(HOSTS[host], link_of(host), SWITCH, port)
            call("ip", "-n", SWITCH, "link", "set", port, "master", "bridge")
            ends.append((SWITCH, port))
    for host in range(hosts):
        call("ip", "-n", HOSTS[host], "addr", "add", f"{address_of(host)}/24", "dev", link_of(host))
        ends.append((HOSTS[host], link_of(host)))
    for namespace, link in ends if rate else ():
        limit(namespace, link, rate_text(rate))


@contextlib.contextmanager
def emulated(rate, hosts=2):
    """The hosts, until the block ends."""
    if os.geteuid() != 0:
        sys.exit("emulated hosts are network namespaces: run this as root")
    try:
        up(rate, hosts)
        yield
    finally:
        down()


def mpirun(hosts, ranks, *words, **options):
    """Runs `words` by Open MPI with so many ranks on each host, whatever they end with."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as agent:
        # Open MPI tells hosts apart by their names. The agent is given one of the addresses.
        agent.write("#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=${1##*.}; shift\n"
                    f"names=({' '.join(HOSTS)})\n"
                    'exec ip netns exec "${names[host - 1]}" '
                    'unshare --uts bash -c "hostname host$host; $*"\n')
    os.chmod(agent.name, 0o755)
    places = ",".join(f"{address_of(host)}:{ranks}" for host in range(hosts))
    command = ["mpirun", "--mca", "plm_rsh_agent", agent.name, "--host", places,
               "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24",
               "--mca", "oob_tcp_if_include", f"{NETWORK}.0/24",
               "--mca", "btl", "self,vader,tcp", "--bind-to", "none", *map(str, words)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_mpi_yield_when_idle="1")
    try:
        return subprocess.run(inside(0, "unshare", "--uts", "bash", "-c",
                                     'hostname host1; exec "$@"', "x", *command),
                              env=environment, text=True, check=False, **options)
    finally:
        os.unlink(agent.name)


def torch_ranks(hosts, ranks, port, *words, stdout=subprocess.PIPE):
    """Runs `words` once a rank with torch.distributed's environment. Returns what rank 0 printed,
    unless `stdout` says where that goes."""
    processes = []
    try:
        for number in range(hosts * ranks):
            host = number // ranks
            environment = dict(os.environ, MASTER_ADDR=address_of(0), MASTER_PORT=str(port),
                               GLOO_SOCKET_IFNAME=link_of(host), RANK=str(number),
                               LOCAL_RANK=str(number % ranks), WORLD_SIZE=str(hosts * ranks),
                               LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
            processes.append(subprocess.Popen(inside(host, *map(str, words)), env=environment,
                                              text=True, stdout=stdout))
        output = processes[0].communicate()[0]
        for process in processes[1:]:
            process.communicate()
    finally:
        for process in processes:
            process.kill()
    codes = [process.returncode for process in processes]
    if any(codes):
        sys.exit(f"the ranks ended with {codes}")
    return output
