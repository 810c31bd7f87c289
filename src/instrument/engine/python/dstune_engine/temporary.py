"""Temporary folders of the engine: their names say whose they are, so that a later job can remove a killed one's."""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile

KINDS = ("dstune-config-", "dstune-scratch-")
# Names are of a process: its system, its number and when it began, as the number is used again.
NAME = re.compile("(?:" + "|".join(KINDS) + r")([0-9a-f]{12})-(\d+)-(\d+)-.+")
folder = tempfile.gettempdir()  # a script may name another


def system():
    """This boot of this machine, and its process numbers: a folder may be shared with others."""
    parts = [os.uname().nodename]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read())
    with contextlib.suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def began(process):
    """When a process began, in ticks of this boot, or None where there is none of this number."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def make(kind):
    return tempfile.mkdtemp(prefix=f"{kind}{system()}-{os.getpid()}-{began(os.getpid())}-", dir=folder)


def remove(path):
    shutil.rmtree(path, ignore_errors=True)


def remove_of_ended_processes():
    """Folders that killed ranks of this user left on this system."""
    here = system()
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            found = NAME.fullmatch(entry.name)
            if not found or found[1] != here:
                continue
            with contextlib.suppress(OSError):
                mine = entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                if mine and began(int(found[2])) != int(found[3]):
                    remove(entry.path)
