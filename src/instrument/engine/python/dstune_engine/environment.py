"""Variables of the environment as Python sees them, without setenv.

The program's threads may read the environment at any time, and setenv is not safe beside them. MPI
keeps its own variables, too. What Python packages read is `os.environ`, which is a copy.
"""

import os


def set_quietly(variables):
    for name, value in variables.items():
        os.environ._data[os.environ.encodekey(name)] = os.environ.encodevalue(str(value))


def forget_quietly(names):
    for name in names:
        os.environ._data.pop(os.environ.encodekey(name), None)


def put_back_quietly(names, before):
    """`names` get their values of the mapping `before`, or go."""
    set_quietly({name: before[name] for name in names if name in before})
    forget_quietly(name for name in names if name not in before)
