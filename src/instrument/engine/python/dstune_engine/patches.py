"""Attributes that are replaced for a time, and put back."""


class Patches:
    def __init__(self):
        self.undo_ = []

    def set(self, owner, name, value):
        had = name in vars(owner) if hasattr(owner, "__dict__") else hasattr(owner, name)
        before = vars(owner)[name] if had else None
        setattr(owner, name, value)
        self.undo_.append((owner, name, had, before))

    def wrap(self, owner, name, wrapper):
        """`wrapper(original, *args, **kwargs)` takes the place of a function or method."""
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            return wrapper(original, *args, **kwargs)

        wrapped.__wrapped__ = original
        wrapped.__name__ = name
        wrapped.__doc__ = original.__doc__
        self.set(owner, name, wrapped)

    def undo(self):
        while self.undo_:
            owner, name, had, before = self.undo_.pop()
            if had:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
