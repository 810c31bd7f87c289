"""Commands of the program, replies to it, and its interrupts."""

import ctypes
import json
import threading

from . import thread_exceptions, unwinding
from .errors import Interrupted, describe, leave, safe, text_of


class Encoder(json.JSONEncoder):
    """Methods of our own: a script may replace json.dumps, and those of the classes."""

    encode, iterencode = json.JSONEncoder.encode, json.JSONEncoder.iterencode


class Decoder(json.JSONDecoder):
    decode, raw_decode = json.JSONDecoder.decode, json.JSONDecoder.raw_decode


encoder = Encoder(allow_nan=False, default=text_of)
decoder = Decoder()


def finite(value):
    """JSON has no NaN, no infinity and no half of a surrogate pair: null and an escape stand for them."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, dict):
        return {text_of(key): finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return value


def encoded(reply):
    """The reply as bytes; one that can not be told becomes a failure that says so."""
    try:
        return encoder.encode(finite(reply)).encode()
    except Exception as error:
        return encoder.encode({"ok": False, "error": finite(describe(error))}).encode()


class Channel:
    """The main thread's way to the program. A reply goes out, the next command comes back."""

    def __init__(self, library):
        self.library_ = library
        self.lock_ = threading.Lock()
        self.inside_ = False  # the main thread runs something that may be interrupted
        self.sent_ = False  # an interrupt, which may still be on its way
        self.main_thread_ = threading.get_ident()
        self.on_interrupt = []  # called by the interrupting thread before the main thread is told
        self.interrupted = False  # since the last command: a script may have caught it
        self.never_ = threading.Lock()
        self.never_.acquire()

    def exchange(self, reply):
        """Hands over `reply` (None: none yet) and returns the next command; never returns at the end."""
        self.closed_to_interrupts()
        text = None if reply is None else encoded(reply)
        command = self.library_.dstune_engine_exchange(text)
        if command is None:
            leave(self.library_.dstune_engine_exit_code())
        self.interrupted = False
        return decoder.decode(command.decode())

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
                    sent, self.sent_ = self.sent_, False
                if sent:
                    thread_exceptions.take_down_flag()
                return
            except Interrupted:
                continue

    def run_script(self, function):
        """Runs `function` and returns what it raised, or None. Then it is closed to interrupts."""
        error = None
        try:
            error = unwinding.script.run(function)
            self.closed_to_interrupts()
        except Interrupted:  # it came after the end
            self.closed_to_interrupts()
        return error

    def caught(self):
        """The script has caught what was to unwind it, and trains on."""
        if not unwinding.script.caught():
            self.note_progress(unwinding.REASON)
            self.never_.acquire()  # for ever: the program gives this rank up

    def note_progress(self, text):
        self.library_.dstune_engine_note_progress(safe(text).encode())

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
                self.interrupted = self.sent_ = True
                thread_exceptions.send(self.main_thread_, Interrupted)
