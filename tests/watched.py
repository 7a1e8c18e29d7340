"""What a watched function has seen."""


def seen(function, *names):
    """(name, line relative to the def's decorator, value) of the last call's changes."""
    first = function.__code__.co_firstlineno
    return [(c.name, c.line - first, c.new) for c in function.changes if not names or c.name in names]


def values(function, name):
    return [c.new for c in function.changes if c.name == name]
