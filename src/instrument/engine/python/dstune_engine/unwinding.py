"""The end of a script that catches what is to unwind it, and goes on.

    while True:
        try:
            step()
        except BaseException:
            pass

What unwinds it knows that it was caught: it is dropped while the script still runs. Then Python
calls a function at the next line of each function of the script, and that raises again. Lines of
the handler and of the loop are outside of the script's `try`, so one level of the script ends each time.
"""

import sys
import threading
import time

MAX_S = 4.0  # below the time that the program gives a rank to come back
REASON = ("the script catches every exception around its training (except BaseException, or a bare except) "
          "and goes on, so it can not be ended: let it catch Exception, or raise again")

set_trace, frame_of, clock, thread_of = sys.settrace, sys._getframe, time.monotonic, threading.get_ident


class Script:
    """The script that runs now between run() and its end, in the main thread."""

    def __init__(self):
        self.thread_ = None
        self.until_ = None
        self.was_caught = False

    def run(self, function):
        """Returns what `function` raised, or None."""
        self.thread_, self.until_, self.was_caught = thread_of(), None, False
        try:
            function()
        except BaseException as error:
            self.thread_ = None
            return error
        finally:
            self.thread_ = None
            if self.was_caught:
                set_trace(None)

    def caught(self):
        """The script has caught what was to unwind it. False: it has done so for too long."""
        if self.thread_ != thread_of():
            return True
        now = clock()
        self.until_ = self.until_ or now + MAX_S
        self.was_caught = True
        if now > self.until_:
            set_trace(None)
            return False
        frame = frame_of(1)
        while frame is not None and frame.f_code is not Script.run.__code__:
            if not str(frame.f_globals.get("__name__")).startswith("dstune_engine"):
                frame.f_trace = self.at_line_
            frame = frame.f_back
        set_trace(self.at_call_)
        return True

    def at_call_(self, frame, event, argument):
        return None  # what handlers call is not disturbed

    def at_line_(self, frame, event, argument):
        if event == "line" and self.thread_ is not None:
            raise Unwinding("the script is to end")
        return self.at_line_


script = Script()


class Unwinding(BaseException):
    """Unwinds a script."""

    def __del__(self):
        script.caught()
