"""Exceptions that one thread raises in another, where Python looks next.

Python 3.12 and older keep one flag for all threads, which is set by each call and taken down only where an
exception is raised. A call that takes an exception back sets it for ever: Python then looks for work at
each call and turn of a loop, and 3.11 never leaves such a look in code that a script traces or profiles.
"""

import ctypes
import threading


class Nothing(BaseException):
    """Is raised for the flag alone."""


def send(thread, kind):
    """Raises `kind` in the thread of that number, instead of one that it has not seen yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def take_down_flag():
    """What is on its way to this thread is dropped. Others may hear of theirs later, or never."""
    try:
        send(threading.get_ident(), Nothing)
        while True:
            pass
    except Nothing:
        pass
