"""What can go wrong with an experiment, and how it is told to the program."""

import os
import sys
import traceback

MAX_TRACEBACK = 32 * 1024
MAX_MESSAGE = 1000


class Refused(Exception):
    """The script, its configuration or the environment does not fit; the message says the mend."""


class MissingOperator(Refused):
    """DeepSpeed would compile an operator now, and no process may be started."""


class ProcessRefused(PermissionError):
    """User code, or a package, tried to start a process."""


class EndOfExperiment(BaseException):
    """Unwinds the user's script when the program has had enough steps."""

    def __init__(self, command):
        super().__init__("the experiment has ended")
        self.command = command


class Interrupted(BaseException):
    """The program gave this experiment up while Python was inside."""


def chain_of(exception):
    """The exception and what it was raised from or while handling, the outermost first."""
    seen = []
    while exception is not None and exception not in seen:
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
        text = str(one)
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
        return " ".join(str(exception).split())
    return " ".join("".join(traceback.format_exception_only(type(exception), exception)).split())[:MAX_MESSAGE]


def describe(exception, output="", near_limit=False):
    """The member `error` of a reply. `near_limit`: the rank's memory was all but used up."""
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
        message = f"the script left by sys.exit({exception.code!r}) before the experiment was over"
    text = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    return {"kind": kind, "message": message, "traceback": text[-MAX_TRACEBACK:], "output": output}


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
    os._exit(code)
