"""What the operating system says of this process: memory, threads, descriptors, sockets."""

import contextlib
import ctypes
import os
import resource
import socket
from io import open  # what a script puts into their places is not ours
from os import dup, listdir, readlink

set_limit = resource.setrlimit  # user code gets another one

def status_bytes(*fields):
    """Values of /proc/self/status in bytes, in the order of `fields`; 0 where one is missing."""
    found = dict.fromkeys(fields, 0)
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0]) * 1024
    return [found[name] for name in fields]


def resident_bytes():
    return status_bytes("VmRSS")[0]


def peak_resident_bytes():
    return status_bytes("VmHWM")[0]


def reset_peak():
    """The peak of resident memory starts anew, where the system allows it."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def threads():
    return len(listdir("/proc/self/task"))


def descriptors():
    return len(listdir("/proc/self/fd"))


def give_back_free_memory():
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def own_working_folder():
    """The main thread gets a working folder of its own, so that chdir does not move the program's.

    The system may not allow it; then chdir acts on the whole process.
    """
    clone_fs = 0x200
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None, use_errno=True).unshare(clone_fs) == 0
    return False


@contextlib.contextmanager
def data_limit(extra_bytes):
    """Limits what the process may allocate to `extra_bytes` more than now; 0: no limit.

    Yields a function that says whether the limit is all but reached.
    """
    if not extra_bytes:
        yield lambda: False
        return
    limit = status_bytes("VmData")[0] + extra_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    set_limit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield lambda: status_bytes("VmData")[0] > limit - extra_bytes * 0.05
    finally:
        set_limit(resource.RLIMIT_DATA, (soft, hard))


def _each_socket():
    """(descriptor, inode) of each socket of the process."""
    for name in listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                yield int(name), target


def _ask(descriptor):
    """(listens, local port, remote port) of a TCP socket, or None for another one or none."""
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=dup(descriptor)) as one:
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return True, one.getsockname()[1], 0
            return False, one.getsockname()[1], one.getpeername()[1]
    return None


def socket_inodes():
    return {inode for _, inode in _each_socket()}


def listening_ports():
    asked = [_ask(descriptor) for descriptor, _ in _each_socket()]
    return sorted({port for answer in asked if answer and answer[0] for port in answer[1:2]})


def connected_since(before, foreign_ports):
    """Descriptors of connected TCP sockets that are not among the inodes `before`.

    `foreign_ports`: ports that other parts of the job (MPI) listen on, on any host; a connection
    to or from one of them is not ours.
    """
    found = []
    for descriptor, inode in _each_socket():
        if inode not in before:
            answer = _ask(descriptor)
            if answer and not answer[0] and not foreign_ports.intersection(answer[1:]):
                found.append(descriptor)
    return found
