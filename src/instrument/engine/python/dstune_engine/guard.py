"""No process is ever started: known look-ups are answered, anything else is an error that names it.

The answers are those that the programs would give. An audit hook sees all other ways to start one.
Nor does user code end this process, which is the job's: watchdogs of scripts call os._exit and os.kill.
"""

import errno
import faulthandler
import io
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys

from .errors import ProcessRefused

# Look-ups whose callers go on when the program is not installed.
ABSENT = {"file", "git", "lscpu", "numactl", "rocminfo", "rocm-smi", "nvidia-smi", "amd-smi", "hipconfig",
          "gpustat", "sysctl", "dmesg", "isainfo", "kstat", "sysinfo", "cpufreq-info", "c2s", "xpu-smi"}

asked = []  # (what was done with it, command): for notes and tests


def words_of(command):
    if isinstance(command, (str, bytes, os.PathLike)):
        return os.fsdecode(command).split()
    return [os.fsdecode(word) if isinstance(word, (str, bytes, os.PathLike)) else str(word) for word in command]


def library_cache():
    """What `ldconfig -p` prints: the shared libraries of the usual folders."""
    folders = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
    folders += [f"{base}/{platform.machine()}-linux-gnu" for base in ("/lib", "/usr/lib")]
    settings = "/etc/ld.so.conf.d"
    for name in sorted(os.listdir(settings)) if os.path.isdir(settings) else []:
        try:
            with open(os.path.join(settings, name), encoding="utf-8") as lines:
                folders += [line.strip() for line in lines if line.startswith("/")]
        except OSError:
            continue
    found = {}
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                if ".so" in name:
                    found.setdefault(name, os.path.join(folder, name))
    lines = [f"\t{name} (libc6,x86-64) => {path}" for name, path in sorted(found.items())]
    return f"{len(lines)} libs found in cache `/etc/ld.so.cache'\n" + "\n".join(lines) + "\n"


def file_system_of(words):
    """What `df -PT PATH` prints: the file system that the path lies on."""
    path = os.path.realpath(next((word for word in words[1:] if not word.startswith("-")), "/"))
    best = ("rootfs", "rootfs", "/")
    with open("/proc/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            device, place, kind = line.split()[:3]
            inside = path == place or path.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best[2]):
                best = (device, kind, place)
    try:
        size = os.statvfs(best[2])
        blocks, free = size.f_blocks * size.f_frsize // 1024, size.f_bavail * size.f_frsize // 1024
    except OSError:
        blocks, free = 0, 0
    used = blocks - free
    return ("Filesystem Type 1024-blocks Used Available Capacity Mounted on\n"
            f"{best[0]} {best[1]} {blocks} {used} {free} {100 * used // max(1, blocks)}% {best[2]}\n")


def processor():
    """What `python cpuinfo.py --json` prints, as far as DeepSpeed asks."""
    facts = {}
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                break
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    machine = platform.machine()
    kind = {"x86_64": "X86_64", "aarch64": "ARM_8", "ppc64le": "PPC_64"}.get(machine, machine.upper())
    return json.dumps({"arch": kind, "arch_string_raw": machine, "bits": 64, "count": os.cpu_count(),
                       "vendor_id_raw": facts.get("vendor_id", ""), "brand_raw": facts.get("model name", ""),
                       "flags": sorted((facts.get("flags") or facts.get("Features") or "").split())})


def answer_to(words):
    """(status, what it prints) of a known look-up, or None."""
    name = os.path.basename(words[0]) if words else ""
    if name == "ldconfig" and "-p" in words:
        return 0, library_cache()
    if name == "uname":
        system = os.uname()
        parts = {"-s": system.sysname, "-r": system.release, "-m": system.machine, "-p": "unknown",
                 "-n": system.nodename, "-v": system.version, "-a": " ".join(system)}
        return 0, parts.get(words[1] if len(words) > 1 else "-s", system.sysname) + "\n"
    if name == "df":
        return 0, file_system_of(words)
    if name == "hostname":
        return 0, os.uname().nodename + "\n"
    if name == "getconf" and words[1:] == ["LONG_BIT"]:
        return 0, "64\n"
    if name in ("bash", "sh") and len(words) == 3 and words[1] == "-c" and words[2].startswith("type "):
        found = shutil.which(words[2].split()[1])
        return (0, f"{words[2].split()[1]} is {found}\n") if found else (1, "")
    if len(words) > 2 and os.path.basename(words[1]) == "cpuinfo.py" and words[2] == "--json":
        return 0, processor()
    return None


class AnsweredPopen(subprocess.Popen):
    """subprocess.Popen that answers what it knows; what it does not know the audit hook refuses."""

    def __init__(self, args, *positional, stdout=None, stderr=None, text=None, encoding=None, errors=None,
                 universal_newlines=None, **others):
        words = words_of(args)
        name = os.path.basename(words[0]) if words else ""
        answer = answer_to(words)
        if answer is None:
            if name in ABSENT:
                asked.append(("absent", words))
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
            super().__init__(args, *positional, stdout=stdout, stderr=stderr, text=text, encoding=encoding,
                             errors=errors, universal_newlines=universal_newlines, **others)
            return
        asked.append(("answered", words))
        self.args, self.pid, self.stdin, self.returncode = args, 0, None, answer[0]
        as_text = bool(text or encoding or errors or universal_newlines)
        self.text_mode = self.universal_newlines = as_text
        stream = (lambda content: io.StringIO(content)) if as_text else (lambda content: io.BytesIO(content.encode()))
        self.stdout = stream(answer[1]) if stdout == subprocess.PIPE else None
        self.stderr = stream("") if stderr == subprocess.PIPE else None

    def poll(self):
        return self.returncode if self.pid == 0 else super().poll()

    def wait(self, timeout=None):
        return self.returncode if self.pid == 0 else super().wait(timeout)

    def communicate(self, input=None, timeout=None):
        if self.pid != 0:
            return super().communicate(input, timeout)
        return tuple(stream.read() if stream else None for stream in (self.stdout, self.stderr))

    def __exit__(self, *_):
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()


def refuse(command):
    asked.append(("refused", words_of(command)))
    raise ProcessRefused(errno.EPERM, "a process would be started, which is not allowed inside the job: "
                         + " ".join(words_of(command))[:300])


def refuse_signal(pid, number):
    """A signal to the ranks or to mpirun, unless the script itself handles it."""
    ours = pid in (os.getpid(), os.getppid()) or pid <= 0
    handler = signal.getsignal(number) if number in signal.valid_signals() else None
    handled = pid == os.getpid() and callable(handler) and handler is not signal.default_int_handler
    if ours and number != 0 and not handled:
        asked.append(("refused", ["kill", str(number)]))
        raise ProcessRefused(errno.EPERM, f"signal {int(number)} would be sent to the ranks of the job or to mpirun, "
                             "which is not allowed inside the job")


def audit(event, arguments):
    if event == "os.kill":
        refuse_signal(*arguments)
    elif event == "signal.pthread_kill":
        refuse_signal(os.getpid(), arguments[1])
    elif event == "os.killpg":
        refuse_signal(0 if arguments[0] == os.getpgrp() else arguments[0], arguments[1])
    elif event == "subprocess.Popen":
        refuse(arguments[1] if arguments[1] is not None else arguments[0])
    elif event in ("os.fork", "os.forkpty", "pty.spawn"):
        refuse(event)
    elif event in ("os.system", "os.exec", "os.posix_spawn", "os.spawn"):
        refuse(arguments[-2] if event == "os.spawn" else arguments[0])


def refused_fork_exec(*arguments):
    refuse(arguments[0])


def leave_instead(code=1):
    """os._exit: it would end the rank. In another thread it ends the thread."""
    raise SystemExit(code)


notes = []  # for the user, on what was done otherwise than the script asks
set_limit, ask_limits = resource.setrlimit, resource.prlimit
raise_signal = signal.raise_signal
limit_names = {getattr(resource, name): name for name in dir(resource) if name.startswith("RLIMIT_")}


def raised_limits(which, limits):
    """Limits hold for the whole process: one is raised where that is asked for, never lowered."""
    size = lambda value: float("inf") if value == resource.RLIM_INFINITY else value
    soft, hard = resource.getrlimit(which)
    wanted = max(limits[0], soft, key=size)
    if size(limits[0]) < size(soft) or size(limits[1]) < size(hard):
        notes.append(f"the script lowers {limit_names.get(which, which)}, which is a limit of the job's process: it "
                     "stays as it is")
    set_limit(which, (wanted, max(limits[1], hard, key=size)))


def limits_of(process, which, limits=None):
    """resource.prlimit"""
    if limits is not None and process in (0, os.getpid()):
        before = resource.getrlimit(which)
        raised_limits(which, limits)
        return before
    return ask_limits(process, which) if limits is None else ask_limits(process, which, limits)


def raise_here(number):
    """signal.raise_signal, of which audit hooks are not told."""
    refuse_signal(os.getpid(), number)
    raise_signal(number)


def dump_only(original):
    def dump_traceback_later(timeout, repeat=False, file=sys.__stderr__, exit=False):
        """A hang has the program's deadline: the dump is written, the process stays."""
        return original(timeout, repeat=repeat, file=file, exit=False)
    return dump_traceback_later


def keep_process():
    """Keeps the process for all threads, those that a script left included."""
    os._exit = leave_instead
    os.abort = leave_instead
    resource.setrlimit, resource.prlimit = raised_limits, limits_of
    signal.raise_signal = raise_here
    faulthandler.dump_traceback_later = dump_only(faulthandler.dump_traceback_later)


def install():
    """Before torch is imported. There is no way back, as audit hooks have none."""
    if subprocess.Popen is AnsweredPopen:
        return
    subprocess.Popen = AnsweredPopen
    import _posixsubprocess
    _posixsubprocess.fork_exec = refused_fork_exec  # multiprocessing calls it without an audit event
    keep_process()
    sys.addaudithook(audit)
