"""State that the system and the interpreter keep for the whole process, and how it is put back.

Timers, limits, signals, masks, hooks of the interpreter, functions of Python's library, threads and
descriptors: a script leaves them, and the program and all later scripts live with them.
"""

import contextlib
import ctypes
import faulthandler
import gc
import locale
import logging
import os
import resource
import signal
import sys
import threading
import time
import tracemalloc
import types

from . import descriptors, guard, thread_exceptions

TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
# Pending ones of a blocked signal would end the process as soon as it is no longer blocked.
DISCARDED = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE,
             signal.SIGXCPU, signal.SIGXFSZ)
LIMITS = [(number, name) for number, name in guard.limit_names.items()]
MAX_ACTION_BYTES = 1024  # more than any system's struct sigaction
MAX_THREAD_S = 0.5
# timer_delete as the kernel has it: the C library's takes a pointer that only its caller has.
TIMER_DELETE = {"x86_64": 226, "aarch64": 111, "ppc64le": 244}.get(os.uname().machine)
# In these modules methods count, too: the engine's own package calls them.
WITH_CLASSES = ("json", "json.encoder", "json.decoder", "threading", "traceback", "tempfile", "logging", "queue")

system = ctypes.CDLL(None, use_errno=True)
set_timer = signal.setitimer


def action_of(number):
    """The system's actions at signals: handlers of C too, which Python does not know."""
    action = ctypes.create_string_buffer(MAX_ACTION_BYTES)
    return action.raw if system.sigaction(int(number), None, action) == 0 else None


def set_action(number, action):
    system.sigaction(int(number), ctypes.create_string_buffer(action, MAX_ACTION_BYTES), None)


def umask():
    """Reads it without setting it, as os.umask would: other threads make files meanwhile."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/task/%d/status" % threading.get_native_id(),
                                                        encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return None


def posix_timers():
    """The kernel's numbers of timers that C code made by timer_create, which Python does not know."""
    with contextlib.suppress(OSError), open("/proc/self/timers", encoding="ascii", errors="replace") as lines:
        return {int(line.split()[1]) for line in lines if line.startswith("ID:")}
    return set()


def stop_timers():
    """Returns what go_on() needs to have them run again."""
    return [(which, *set_timer(which, 0)) for which in TIMERS]


def go_on(timers):
    for which, left_s, interval_s in timers:
        if left_s > 0:
            set_timer(which, left_s, interval_s)


def steadily(function):
    """Calls it until it comes to its end: Python runs a signal's handler, which may raise, at any call."""
    for _ in range(20):
        try:
            return function()
        except BaseException as error:
            failure = error
    return failure


def is_part(value):
    return isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type))


def stack_size():
    """The stack size of new threads. To ask for it sets it to the default."""
    size = threading.stack_size()
    if size:
        threading.stack_size(size)
    return size


class LibraryFunctions:
    """What Python's own modules are made of, which scripts replace (json.dumps, builtins.print, os.path)."""

    def __init__(self):
        self.taken_ = []
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in sys.stdlib_module_names and isinstance(module, types.ModuleType):
                if name != "__main__":
                    self.take_(module, is_part)
            if name in WITH_CLASSES:
                for kind in [one for one in vars(module).values() if isinstance(one, type)]:
                    if kind.__module__ == name:
                        self.take_(kind, callable)

    def take_(self, owner, is_kept):
        self.taken_.append((owner, {key: value for key, value in vars(owner).items() if is_kept(value)}))

    def put_back(self):
        for owner, members in self.taken_:
            names = vars(owner)
            for key, value in members.items():
                if names.get(key) is not value:
                    with contextlib.suppress(TypeError, AttributeError):
                        setattr(owner, key, value)


class ProcessSettings:
    """Taken before a script runs; put_back() in the main thread as soon as it is over, end_threads() after it."""

    def __init__(self):
        self.modules_ = dict(sys.modules)
        self.library_ = LibraryFunctions()
        self.threads_ = set(threading.enumerate())
        self.timers_ = [signal.getitimer(which) for which in TIMERS]
        self.posix_timers_ = posix_timers()
        self.actions_ = {number: action_of(number) for number in SIGNALS}
        self.handlers_ = {number: signal.getsignal(number) for number in SIGNALS}
        self.mask_ = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self.wakeup_ = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(self.wakeup_)
        self.reports_faults_ = faulthandler.is_enabled()
        self.limits_ = {which: resource.getrlimit(which) for which, _ in LIMITS}
        self.umask_ = umask()
        self.priority_ = os.getpriority(os.PRIO_PROCESS, 0)
        self.processors_ = os.sched_getaffinity(0)
        self.locale_ = locale.setlocale(locale.LC_ALL)
        self.interpreter_ = [(setter, getter()) for setter, getter in self.interpreter_settings_()]
        self.collector_ = (gc.get_threshold(), gc.get_debug(), list(gc.callbacks))
        self.frozen_ = gc.get_freeze_count()
        self.freeze_again_ = False
        self.meta_path_ = list(sys.meta_path)
        self.environ_ = os.environ
        self.notes_ = []
        guard.notes.clear()
        descriptors.opened.start()
        descriptors.streams.start()

    @staticmethod
    def interpreter_settings_():
        found = [(sys.setrecursionlimit, sys.getrecursionlimit), (sys.setswitchinterval, sys.getswitchinterval),
                 (sys.settrace, sys.gettrace), (sys.setprofile, sys.getprofile),
                 (lambda hooks: sys.set_asyncgen_hooks(*hooks), sys.get_asyncgen_hooks),
                 (threading.settrace, lambda: threading._trace_hook),
                 (threading.setprofile, lambda: threading._profile_hook),
                 (threading.stack_size, stack_size)]
        if hasattr(sys, "set_int_max_str_digits"):
            found.append((sys.set_int_max_str_digits, sys.get_int_max_str_digits))
        return found

    def put_back(self):
        """Timers first: one that runs out calls a handler, or ends the process."""
        for part in (self.stop_what_runs_, self.put_back_modules_, descriptors.streams.put_back,
                     self.library_.put_back, self.put_back_signals_, self.put_back_limits_, self.put_back_process_,
                     self.put_back_interpreter_):
            steadily(part)

    def stop_what_runs_(self):
        for which, (left_s, _) in zip(TIMERS, self.timers_):
            if left_s == 0:
                signal.setitimer(which, 0)
        if TIMER_DELETE is not None:
            for number in posix_timers() - self.posix_timers_:
                system.syscall(TIMER_DELETE, number)
        sys.settrace(None)
        sys.setprofile(None)
        faulthandler.cancel_dump_traceback_later()
        for thread in set(threading.enumerate()) - self.threads_:
            if isinstance(thread, threading.Timer):
                thread.cancel()

    def put_back_modules_(self):
        for name, module in self.modules_.items():
            if name != "__main__" and sys.modules.get(name) is not module:
                sys.modules[name] = module

    def put_back_signals_(self):
        if faulthandler.is_enabled() and not self.reports_faults_:
            faulthandler.disable()  # before the descriptor of the script's file is another's
        elif self.reports_faults_:
            faulthandler.enable(2)
        for number in SIGNALS:
            with contextlib.suppress(RuntimeError, ValueError):
                faulthandler.unregister(number)
        signal.set_wakeup_fd(self.wakeup_)
        for number in signal.sigpending().intersection(DISCARDED) - self.mask_:
            signal.signal(number, signal.SIG_IGN)
        for number in SIGNALS:
            before = self.handlers_[number]
            if signal.getsignal(number) is not before:
                # One of C is unknown to Python: it forgets the script's at least.
                signal.signal(number, signal.SIG_DFL if before is None else before)
            if self.actions_[number] is not None and action_of(number) != self.actions_[number]:
                set_action(number, self.actions_[number])
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_)

    def put_back_limits_(self):
        for which, name in LIMITS:
            before, now = self.limits_[which], resource.getrlimit(which)
            if now == before:
                continue
            try:
                guard.set_limit(which, before)
            except (OSError, ValueError):  # a hard limit that only root may raise
                soft = before[0]
                if now[1] != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > now[1]):
                    soft = now[1]
                with contextlib.suppress(OSError, ValueError):
                    guard.set_limit(which, (soft, now[1]))
                self.note_(f"the script lowered the hard limit {name} from {before[1]} to {now[1]}, which only root "
                           "may raise again: the rest of the job runs with it on this rank")

    def put_back_process_(self):
        os.environ = self.environ_
        if self.umask_ is not None and umask() != self.umask_:
            os.umask(self.umask_)
        if os.getpriority(os.PRIO_PROCESS, 0) != self.priority_:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, self.priority_)
            except OSError:
                self.note_(f"the script changed the priority of its rank from {self.priority_} to "
                           f"{os.getpriority(os.PRIO_PROCESS, 0)} (os.nice), which only root may put back: later "
                           "experiments of this rank are measured with it")
        if os.sched_getaffinity(0) != self.processors_:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.processors_)
        if locale.setlocale(locale.LC_ALL) != self.locale_:
            locale.setlocale(locale.LC_ALL, self.locale_)

    def put_back_interpreter_(self):
        for setter, value in self.interpreter_:
            setter(value)
        threshold, debug, callbacks = self.collector_
        gc.set_threshold(*threshold)
        gc.set_debug(debug)
        gc.callbacks[:] = callbacks
        if gc.get_freeze_count() > self.frozen_:
            gc.unfreeze()  # what the script set aside would never be collected
            self.freeze_again_ = True
        if tracemalloc.is_tracing() and not os.environ.get("PYTHONTRACEMALLOC"):
            tracemalloc.stop()
        sys.meta_path[:0] = [finder for finder in self.meta_path_ if finder not in sys.meta_path]
        if getattr(logging, "_warnings_showwarning", None) is not None:
            logging.captureWarnings(False)

    def note_(self, text):
        if text not in self.notes_:
            self.notes_.append(text)

    def end_threads(self, is_users):
        """Threads that run the script's code end where they look; the others stay and are named.

        `is_users(globals)` says whose a function is. Threads of libraries serve later experiments.
        """
        mine = [thread for thread in set(threading.enumerate()) - self.threads_ if self.is_scripts_(thread, is_users)]
        until = time.monotonic() + MAX_THREAD_S
        while mine and time.monotonic() < until:
            for thread in mine:
                thread_exceptions.send(thread.ident, SystemExit)
            time.sleep(0.005)
            mine = [thread for thread in mine if thread.is_alive()]
        if mine:
            thread_exceptions.take_down_flag()
            self.note_("the script left threads that can not be ended: "
                       + ", ".join(sorted(str(thread.name)[:50] for thread in mine))
                       + "; they may disturb what is measured later: let them end with the training")

    @staticmethod
    def is_scripts_(thread, is_users):
        if isinstance(thread, threading.Timer):
            return True
        function = getattr(thread, "_target", None) or type(thread).run
        function = getattr(function, "__func__", getattr(function, "func", function))  # methods, functools.partial
        return is_users(getattr(function, "__globals__", None) or {})

    def settle(self):
        """At the very end, when the script's objects are gone."""
        descriptors.opened.close()
        if self.freeze_again_:
            gc.collect()
            gc.freeze()

    def take_notes(self):
        found, self.notes_ = self.notes_ + list(dict.fromkeys(guard.notes)), []
        guard.notes.clear()
        return found
