"""Commands of the program, replies to it, and its interrupts."""

import ctypes
import json
import threading

from .errors import Interrupted, leave


def finite(value):
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return value


class Channel:
    """The main thread's way to the program. A reply goes out, the next command comes back."""

    def __init__(self, library):
        self.library_ = library
        self.lock_ = threading.Lock()
        self.inside_ = False  # the main thread runs something that may be interrupted
        self.main_thread_ = threading.get_ident()
        self.on_interrupt = []  # called by the interrupting thread before the main thread is told

    def exchange(self, reply):
        """Hands over `reply` (None: none yet) and returns the next command; never returns at the end."""
        self.closed_to_interrupts()
        text = None if reply is None else json.dumps(finite(reply), allow_nan=False).encode()
        command = self.library_.dstune_engine_exchange(text)
        if command is None:
            leave(self.library_.dstune_engine_exit_code())
        return json.loads(command)

    def open_to_interrupts(self):
        """From here on the program may interrupt what runs in the main thread."""
        with self.lock_:
            self.inside_ = True

    def closed_to_interrupts(self):
        """Ends that; an interrupt that is on its way is swallowed."""
        while True:
            try:
                with self.lock_:
                    self.inside_ = False
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.main_thread_), None)
                return
            except Interrupted:
                continue

    def note_progress(self, text):
        self.library_.dstune_engine_note_progress(text.encode())

    def note_sockets(self, descriptors):
        """Names the sockets that the program shuts down when this rank hangs in a collective."""
        self.library_.dstune_engine_note_sockets((ctypes.c_int * max(1, len(descriptors)))(*descriptors),
                                                 len(descriptors))

    def start_interrupts(self):
        threading.Thread(target=self.wait_for_interrupts_, daemon=True, name="dstune-interrupts").start()

    def wait_for_interrupts_(self):
        while self.library_.dstune_engine_wait_interrupt():
            with self.lock_:
                if not self.inside_:
                    continue
                for action in self.on_interrupt:
                    try:
                        action()
                    except Exception:  # the main thread must hear of it all the same
                        pass
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.main_thread_),
                                                           ctypes.py_object(Interrupted))
