"""The entry: the bootstrap calls run() in the main thread of the interpreter."""

import ctypes

from .channel import Channel
from .commands import Job
from .errors import leave


def run(library, argv):
    """Starts the program on a thread of its own and serves its commands; does not return."""
    words = [word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape") for word in argv]
    library.dstune_engine_begin(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    channel = Channel(library)
    channel.start_interrupts()
    try:
        Job(channel).serve()
    finally:
        leave(1)  # reached by an error of our own only
