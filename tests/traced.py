"""What tests of tracing share."""

import tenscope


def events(run, kind="value", **where):
    found = tenscope.open(run.path).events(kind=kind, **({"name": where.pop("name")} if "name" in where else {}))
    return [e for e in found if all(getattr(e, key) == value for key, value in where.items())]
