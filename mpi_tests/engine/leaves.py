"""A user's script for tests: a tiny training that leaves something in its process, or does not let go of it."""

import argparse
import builtins
import ctypes
import faulthandler
import gc
import json
import locale
import logging
import os
import pickle
import resource
import signal
import sys
import threading
import time

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--case", default="plain")
parser.add_argument("--out")
parser.add_argument("--at", type=int, default=1)
deepspeed.add_config_arguments(parser)
args = parser.parse_args()

real_dumps = json.dumps


class Unwritable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Equal(Exception):
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None


class Leaving(Exception):
    def __str__(self):
        sys.exit(3)


class NoText(Exception):
    def __str__(self):
        return 5


def signals():
    with open("/proc/thread-self/status", encoding="ascii") as lines:
        return [line.split() for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt", "Umask"))]


def kinds_of_descriptors():
    """Files by their names, pipes and sockets without their numbers."""
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
        except OSError:  # of the list itself
            pass


def surroundings():
    """What a script sees of its process."""
    return {
        "signals": signals(), "handlers": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "timers": [signal.getitimer(which) for which in (0, 1, 2)],
        "limits": [resource.getrlimit(number) for number in range(16)],
        "nice": os.nice(0), "processors": sorted(os.sched_getaffinity(0)), "locale": locale.setlocale(locale.LC_ALL),
        "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(), "trace": str(sys.gettrace()),
        "profile": str(sys.getprofile()), "hooks": [str(threading.excepthook), str(threading._trace_hook)],
        "faults": faulthandler.is_enabled(), "collector": [gc.get_threshold(), len(gc.callbacks)],
        "functions": [str(one) for one in (json.dumps, json.JSONEncoder.encode, pickle.dumps, builtins.print,
                                           time.perf_counter, os.getpid, os.path)],
        "environment": sorted(set(os.environ) - {"DSTUNE_EXPERIMENT"}), "environ": type(os.environ).__name__,
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "descriptors": sorted(kinds_of_descriptors()),
    }


def exit_soon():
    time.sleep(0.6)
    os._exit(9)


def wait_in_a_loop(leave=os._exit, sleep=time.sleep, clock=time.monotonic):
    end = clock() + 0.6
    while clock() < end:
        sleep(0.01)
    leave(8)


def create_timer(left_s):
    """As C code does it: it sends SIGALRM."""
    libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
    libc.timer_create(time.CLOCK_MONOTONIC, None, ctypes.byref(timer))
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, int(left_s * 1e9)), None)


def leave_something():
    if "alarm" in args.case:
        signal.alarm(1)
    if "virtual" in args.case:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.3)
    if "prof" in args.case:
        signal.setitimer(signal.ITIMER_PROF, 0.3)
    if "posix" in args.case:
        create_timer(0.6)
    if "closes" in args.case:
        os.close(1)
        os.closerange(2, 3)
    if "redirects" in args.case:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
    if "modules" in args.case:
        del sys.modules["torch"]
    if "dump" in args.case:
        faulthandler.dump_traceback_later(0.6, exit=True)
    if "timer" in args.case:
        threading.Timer(0.6, os._exit, [1]).start()
    if "thread" in args.case:
        for work in (exit_soon, wait_in_a_loop):
            threading.Thread(target=work, daemon=True, name=work.__name__).start()


def fail(*_, **__):
    raise RuntimeError("replaced by a script")


def change_everything():
    for which in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
        resource.setrlimit(which, (0 if which == resource.RLIMIT_CORE else 64, resource.getrlimit(which)[1]))
    libc = ctypes.CDLL(None)  # as C code does it
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1] % 2**64
    libc.setrlimit(resource.RLIMIT_FSIZE, (ctypes.c_ulong * 2)(1 << 20, hard))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTRAP}:
        signal.signal(number, lambda *_: None)
    libc.signal(signal.SIGTRAP, ctypes.c_void_p(1))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM})
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)  # blocked, and pending in the end
    faulthandler.enable(file=open(os.devnull, "w"))
    faulthandler.register(signal.SIGUSR2, file=sys.__stderr__)
    os.umask(0o077)
    os.nice(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    locale.setlocale(locale.LC_ALL, "C")
    sys.setrecursionlimit(500)
    sys.setswitchinterval(0.5)
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    threading.settrace(lambda *_: None)
    threading.excepthook = fail
    gc.set_threshold(7, 7, 7)
    gc.callbacks.append(lambda *_: None)
    gc.freeze()
    logging.captureWarnings(True)
    os.environ = dict(os.environ, LEFT="1")
    os.open(os.devnull, os.O_RDONLY)
    os.open(__file__, os.O_RDONLY)
    os.pipe()
    json.dumps = json.loads = json.JSONEncoder.encode = fail
    pickle.dumps = builtins.print = builtins.open = time.perf_counter = os.getpid = os.listdir = fail
    os.path = None


def fail_here():
    if args.case == "unwritable":
        raise Unwritable()
    if args.case == "notext":
        raise NoText()
    if args.case == "equal":
        raise Equal("first") from Equal("second")
    if args.case == "leaving":
        raise Leaving()
    if args.case == "surrogate":
        raise ValueError("half a pair: \ud800")
    if args.case == "long":
        raise ValueError("x" * (1 << 24))
    if args.case == "exit":
        sys.exit(Unwritable())
    if args.case == "really_exit":
        os._exit(3)
    if args.case == "kill":
        os.kill(os.getpid(), signal.SIGTERM)
    if args.case == "kill_launcher":
        os.kill(os.getppid(), signal.SIGTERM)
    if args.case == "raise":
        signal.raise_signal(signal.SIGKILL)
    if args.case == "handled":
        got = []
        signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert got
    if args.case == "stands":
        signal.alarm(1)
    if args.case.startswith("leaves"):
        leave_something()
    if args.case == "everything":
        change_everything()


def packages():
    """Modules of installed packages stay from run to run, the user's own are made anew."""
    import early.late
    import installed.part
    import mine
    known = getattr(torch, "__packages__", None)
    if known is None:
        torch.__packages__ = (early.late, installed.part, mine, installed.part.use)
        return
    assert known[0] is early.late and known[1] is installed.part, "an installed package was forgotten"
    assert known[2] is not mine, "the user's module was kept"
    assert known[3]() == "used"


def keep_on(step, depth):
    """Whatever happens."""
    while True:
        try:
            if depth:
                keep_on(step, depth - 1)
            else:
                step()
        except BaseException:
            pass


def main():
    if args.case == "look":
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(real_dumps(surroundings()))
    if args.case == "packages":
        packages()
    deepspeed.init_distributed()
    model = torch.nn.Linear(4, 1)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    size = 3 if args.case == "keeps_on_wrong" else engine.train_micro_batch_size_per_gpu()
    done = 0

    def step():
        nonlocal done
        loss = engine(torch.ones(size, 4)).square().mean()
        if done == args.at:
            fail_here()
        engine.backward(loss)
        engine.step()
        done += 1
        if args.case == "keeps_on_waiting" and done > 1:
            keep_on(lambda: time.sleep(0.01), 0)

    if args.case.startswith("keeps_on"):
        keep_on(step, {"keeps_on_3": 2, "keeps_on_2": 1}.get(args.case, 0))
    for _ in range(1000):
        step()


main()
