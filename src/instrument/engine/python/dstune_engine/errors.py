"""What can go wrong with an experiment, and how it is told to the program."""

import os
import sys
import traceback

from .unwinding import Unwinding

MAX_TRACEBACK = 32 * 1024
MAX_MESSAGE = 1000
really_leave = os._exit  # user code gets another one


class Refused(Exception):
    """The script, its configuration or the environment does not fit; the message says the mend."""


class MissingOperator(Refused):
    """DeepSpeed would compile an operator now, and no process may be started."""


class ProcessRefused(PermissionError):
    """User code, or a package, tried to start a process."""


class EndOfExperiment(Unwinding):
    """Unwinds the user's script when the program has had enough steps."""

    def __init__(self, command):
        super().__init__("the experiment has ended")
        self.command = command


class Interrupted(Unwinding):
    """The program gave this experiment up while Python was inside."""


def safe(text):
    """`text` as an exact str that can be encoded: exceptions and paths may hold half of a surrogate pair."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def text_of(value, how=str):
    """str(value), also of an object whose text fails."""
    try:
        return safe(how(value))
    except BaseException as error:
        return f"<a {type(value).__name__} whose text fails with {type(error).__name__}>"


def chain_of(exception):
    """The exception and what it was raised from or while handling, the outermost first."""
    seen = []
    while exception is not None and not any(exception is one for one in seen):  # their == may be the user's
        seen.append(exception)
        cause = exception.__cause__
        if cause is None and not exception.__suppress_context__:
            cause = exception.__context__
        exception = cause
    return seen


def is_out_of_memory(exception):
    torch = sys.modules.get("torch")
    kinds = tuple(kind for kind in (getattr(torch, "OutOfMemoryError", None),
                                    getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None))
                  if kind is not None)
    for one in chain_of(exception):
        text = text_of(one)
        if isinstance(one, (MemoryError, *kinds)):
            return True
        if isinstance(one, OSError) and one.errno == 12:
            return True
        if isinstance(one, RuntimeError) and any(sign in text for sign in (
                "DefaultCPUAllocator: can't allocate memory", "std::bad_alloc",
                "Cannot allocate memory", "CUDA out of memory", "CUDA error: out of memory")):
            return True
    return False


def message_of(exception):
    """The exception in one line, as the last line of a traceback has it."""
    if isinstance(exception, Refused):
        return " ".join(text_of(exception).split())
    try:
        lines = traceback.format_exception_only(type(exception), exception)
        return " ".join(safe("".join(lines)).split())[:MAX_MESSAGE]
    except BaseException:  # what it is made of is the user's
        return f"{type(exception).__name__}: {text_of(exception)}"[:MAX_MESSAGE]


def traceback_of(exception):
    try:
        text = safe("".join(traceback.format_exception(type(exception), exception, exception.__traceback__)))
    except BaseException:
        lines = traceback.format_tb(exception.__traceback__)
        text = safe("".join(["Traceback (most recent call last):\n", *lines])) + message_of(exception) + "\n"
    half = MAX_TRACEBACK // 2
    return text if len(text) <= MAX_TRACEBACK else text[:half] + "\n[...]\n" + text[-half:]


def describe(exception, output="", near_limit=False):
    """The member `error` of a reply, whatever was raised. `near_limit`: the rank's memory was all but used up."""
    try:
        return told_of(exception, output, near_limit)
    except BaseException as error:
        return {"kind": "exception", "traceback": "", "output": output,
                "message": f"{type(exception).__name__}, of which nothing can be told: {type(error).__name__}"}


def told_of(exception, output, near_limit):
    kind, told = "exception", exception
    refusals = [one for one in chain_of(exception) if isinstance(one, (Refused, ProcessRefused))]
    if isinstance(exception, Interrupted):
        kind = "interrupted"
    elif is_out_of_memory(exception) or (near_limit and isinstance(exception, (RuntimeError, OSError))):
        kind = "out_of_memory"
    elif refusals:
        kind, told = "refused", refusals[-1]
    elif isinstance(exception, SystemExit):
        kind = "refused"
    message = message_of(told)
    if isinstance(exception, SystemExit):
        code = text_of(exception.code, repr)[:MAX_MESSAGE]
        message = f"the script left by sys.exit({code}) before the experiment was over"
    return {"kind": kind, "message": message, "traceback": traceback_of(exception), "output": output}


def forget_frames(exception):
    """Frames of a traceback hold the model: they are cleared, and the traceback is dropped."""
    for one in chain_of(exception):
        if one.__traceback__ is not None:
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None
    for name in ("last_exc", "last_value", "last_traceback", "last_type"):
        if hasattr(sys, name):
            delattr(sys, name)


def leave(code):
    """Ends the process without Python's clean-up, which torch does not stand after MPI has ended."""
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    really_leave(code)
