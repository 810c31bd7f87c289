"""What user code prints: the last of it is kept, for the report of a failure."""

import io
import sys


class Tail(io.TextIOBase):
    """A text stream that keeps its last characters and can be written to as bytes, too."""

    class Bytes(io.RawIOBase):
        def __init__(self, tail):
            self.tail_ = tail

        def writable(self):
            return True

        def write(self, data):
            self.tail_.write(bytes(data).decode("utf-8", "replace"))
            return len(data)

    def __init__(self, max_characters=64 * 1024):
        self.max_ = max_characters
        self.text_ = ""
        self.buffer = Tail.Bytes(self)

    encoding = "utf-8"
    errors = "replace"

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return 2

    def write(self, text):
        self.text_ += text
        if len(self.text_) > 2 * self.max_:
            self.text_ = self.text_[-self.max_:]
        return len(text)

    def reconfigure(self, **_):
        pass

    def close(self):
        pass  # a script that closes its stdout must not take ours away

    def text(self):
        return self.text_[-self.max_:]

    def clear(self):
        self.text_ = ""


def capture():
    """Puts a Tail in the place of stdout and stderr, once and for the whole job."""
    tail = Tail()
    sys.stdout = sys.stderr = tail
    return tail
