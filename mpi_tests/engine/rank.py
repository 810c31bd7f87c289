"""One rank of a test: the Python half of the engine, with a library that talks to the harness.

Descriptors: commands come in on the first, replies and events go out on the second, interrupts come
in on the third; all as lines of JSON.
"""

import json
import os
import socket
import sys
import threading

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "instrument", "engine", "python")
sys.path.insert(0, SOURCES)
load, dump = json.JSONDecoder().scan_once, json.dumps  # scripts replace json.loads


class Library:
    """What libdstune-mpi.so offers, played by the harness at the other ends of three pipes."""

    def __init__(self, commands, replies, interrupts):
        self.commands_ = os.fdopen(commands, "r", encoding="utf-8")
        self.replies_ = os.fdopen(replies, "w", encoding="utf-8")
        self.interrupts_ = os.fdopen(interrupts, "r", encoding="utf-8")
        self.lock_ = threading.Lock()
        self.sockets_ = []

    def dstune_engine_begin(self, count, words):
        return 0

    def dstune_engine_exchange(self, reply):
        if reply is not None:
            self.say_(reply.decode())
        line = self.commands_.readline()
        return line.encode() if line.strip() else None

    def dstune_engine_exit_code(self):
        return 0

    def dstune_engine_wait_interrupt(self):
        line = self.interrupts_.readline()
        if not line.strip():
            return 0
        for descriptor in self.sockets_ if load(line, 0)[0]["shutdown"] else []:
            try:  # Python closes them as soon as the first has ended
                with socket.socket(fileno=os.dup(descriptor)) as one:
                    one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        return 1

    def dstune_engine_note_sockets(self, descriptors, count):
        self.sockets_ = list(descriptors)[:count]

    def dstune_engine_note_progress(self, text):
        self.say_(dump({"event": "progress", "text": text.decode()}))

    def say_(self, message):
        with self.lock_:
            self.replies_.write(message + "\n")
            self.replies_.flush()


if __name__ == "__main__":
    ends = map(int, sys.argv[1:4])
    sys.argv[:] = ["dstune-mpi"]
    from dstune_engine import main
    main.run(Library(*ends), ["dstune-mpi", "space.json"])
