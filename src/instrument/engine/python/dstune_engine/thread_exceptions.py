"""Exceptions that one thread raises in another, where Python looks next.

Python 3.12 and older keep one flag for all threads. Each call sets it, and only an exception that is raised
takes it down. A call that takes an exception back sets it for ever. Python then looks for work at each call
and turn of a loop, and 3.11 never leaves such a look in code that a script traces or profiles.
"""

import ctypes
import threading


class Nothing(BaseException):
    """Is raised for the flag alone."""


def send(thread, kind):
    """Raises `kind` in the thread of that number, instead of one that it has not seen yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def take_down_flag():
    """Drops what is on its way to this thread; what is raised meanwhile is raised again at the end.

    Other threads may hear of theirs later, or never.
    """
    other = None
    while True:
        try:
            while True:  # a script's handler of a signal may swallow one
                send(threading.get_ident(), Nothing)
        except Nothing:
            break
        except BaseException as error:
            other = error
    if other is not None:
        raise other
