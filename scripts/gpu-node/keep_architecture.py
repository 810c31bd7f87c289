#!/usr/bin/env python3
"""Cuts a library of CUDA code to the machine code of one architecture, so that it packs small.

    keep_architecture.py 90 libnccl.so.2 slim/libnccl.so.2

Code of other architectures becomes zeros and offsets stay, so that the file needs no linker. The layout
of "fat binaries": a section .nv_fatbin is a row of containers, each a header of 16 bytes (magic 0xBA55ED50,
version, size of the header, size of the rest) and entries; an entry has a header (kind, its size, size of
its code; the architecture at byte 28) and its code. Kind 1 is PTX, 2 machine code. __nv_relfatbin is read
by linkers alone.
"""
import struct
import sys

MAGIC = 0xBA55ED50
MACHINE_CODE = 2


def sections(data):
    """(name, offset, size) of each section of a 64-bit ELF file."""
    table, = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    entries = [struct.unpack_from("<IIQQQQ", data, table + index * entry_size) for index in range(count)]
    names = entries[names_index][4]
    for name, _, _, _, offset, size in entries:
        end = data.index(b"\0", names + name)
        yield data[names + name:end].decode(), offset, size


def cut(data, offset, size, architecture):
    """Returns the bytes of code that are kept."""
    kept = 0
    end = offset + size
    while offset <= end - 16:
        magic, _, header_size, body_size = struct.unpack_from("<IHHQ", data, offset)
        if magic != MAGIC:
            offset += 8
            continue
        entry, body_end = offset + header_size, offset + header_size + body_size
        while entry < body_end:
            kind, _, entry_header, code_size = struct.unpack_from("<HHIQ", data, entry)
            found, = struct.unpack_from("<I", data, entry + 28)
            if kind == MACHINE_CODE and found == architecture:
                kept += code_size
            else:
                data[entry + entry_header:entry + entry_header + code_size] = bytes(code_size)
            entry += entry_header + code_size
        offset = body_end
    return kept


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[2], "rb") as file:
        data = bytearray(file.read())
    kept = 0
    for name, offset, size in list(sections(data)):
        if name == "__nv_relfatbin":
            data[offset:offset + size] = bytes(size)
        elif name == ".nv_fatbin":
            kept += cut(data, offset, size, int(sys.argv[1]))
    if kept == 0:
        sys.exit(f"{sys.argv[2]} has no machine code for architecture {sys.argv[1]}")
    with open(sys.argv[3], "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main()
