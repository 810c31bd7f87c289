"""Descriptors that a script opens and leaves, and the standard streams that it closes or redirects."""

import contextlib
import fcntl
import gc
import io
import os
import stat

STREAMS = range(3)

close_descriptor = os.close


class Opened:
    """Descriptors that user code opened by os.open and os.pipe, which nothing closes by itself."""

    def __init__(self):
        self.active = False
        self.found_ = {}
        self.open_, self.pipe_ = os.open, os.pipe

    def install(self):
        os.open, os.pipe = self.opened_, self.piped_

    def opened_(self, *args, **kwargs):
        descriptor = self.open_(*args, **kwargs)
        self.note_(descriptor)
        return descriptor

    def piped_(self):
        pair = self.pipe_()
        for descriptor in pair:
            self.note_(descriptor)
        return pair

    def note_(self, descriptor):
        if self.active:
            with contextlib.suppress(OSError):
                self.found_[descriptor] = self.identity_(descriptor)

    @staticmethod
    def identity_(descriptor):
        state = os.fstat(descriptor)
        return state.st_dev, state.st_ino, os.readlink(f"/proc/self/fd/{descriptor}")

    def start(self):
        self.found_.clear()
        self.active = True

    def close(self):
        """Those that are what they were, and no object's that will close them itself."""
        self.active = False
        if not self.found_:
            return
        owned = set()
        for one in gc.get_objects():
            if type(one) is io.FileIO:
                with contextlib.suppress(ValueError, OSError):
                    owned.add(one.fileno())
            elif type(one).__name__ == "Connection" and isinstance(getattr(one, "_handle", None), int):
                owned.add(one._handle)
        for descriptor, identity in self.found_.items():
            with contextlib.suppress(OSError):
                if descriptor not in owned and self.identity_(descriptor) == identity:
                    close_descriptor(descriptor)
        self.found_.clear()


class Streams:
    """Descriptors 0 to 2. A closed one would be the next socket's, and whoever writes to it or puts a file there
    breaks the socket: so it becomes /dev/null until the script is over."""

    def __init__(self):
        self.close_range_ = os.closerange
        self.kept_ = []

    def install(self):
        os.close, os.closerange = self.close, self.close_range

    def close(self, descriptor):
        if descriptor in STREAMS:
            self.silence_(descriptor)
        else:
            close_descriptor(descriptor)

    def close_range(self, first, end):
        for descriptor in set(STREAMS) & set(range(first, min(end, len(STREAMS)))):
            with contextlib.suppress(OSError):
                self.silence_(descriptor)
        self.close_range_(max(first, len(STREAMS)), end)

    @staticmethod
    def silence_(descriptor):
        os.fstat(descriptor)  # raises where it is none
        nothing = opened.open_(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, descriptor)
        close_descriptor(nothing)

    def start(self):
        self.let_go_()
        for descriptor in STREAMS:
            with contextlib.suppress(OSError):
                self.kept_.append((descriptor, fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, len(STREAMS))))

    def put_back(self):
        for descriptor, kept in self.kept_:
            with contextlib.suppress(OSError):
                if not self.is_taken_(descriptor):
                    os.dup2(kept, descriptor)
        self.let_go_()

    @staticmethod
    def is_taken_(descriptor):
        """C code closed it, and a library that works on has a socket or the like there."""
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode))

    def let_go_(self):
        for _, kept in self.kept_:
            with contextlib.suppress(OSError):
                close_descriptor(kept)
        self.kept_.clear()


opened = Opened()
streams = Streams()
