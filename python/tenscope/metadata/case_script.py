"""The script of a reproducer (`tenscope repro RUN --call ...`), written as Python that builds, calls and compares.

Recorded descriptions (probes/build.py has their form) become expressions; objects that several modules have become
variables. What the description lacks is collected in `missing`.
"""

from __future__ import annotations

import keyword

# Names that the script uses itself.
RESERVED = {
    "arguments", "built", "code", "compare", "device", "from_recording", "held", "inputs", "load", "module", "new",
}  # fmt: skip


_WIDTH = 118


class CannotWrite(Exception):
    pass


class Expressions:
    """Recorded values as Python."""

    def __init__(self, objects: dict[int, dict], code_module: str):
        self._objects = objects
        self._code_module = code_module  # stands for __main__
        self.imports: dict[str, str] = {}  # module: the statement that imports it
        self.things: list[str] = []  # statements that make objects
        self._made: dict[int, str] = {}
        self.main_names: set[str] = set()  # what of __main__ is needed
        self.needs_later = False  # the last value refers to modules or to the model's tensors

    def name(self, path: str) -> str:
        """The expression for what has this import path, `package.module:Outer.name`."""
        owner, _, name = path.partition(":")
        if owner == "builtins":
            return name
        if owner == "__main__":
            self.main_names.add(name.partition(".")[0])
            owner = self._code_module
        if owner == "torch" or owner.startswith(("torch._C", "torch.nn.")):  # which torch imports itself
            return f"{owner}.{name}"
        top = owner.partition(".")[0]
        if top in RESERVED or keyword.iskeyword(top):
            alias = owner.replace(".", "_") + "_"
            self.imports[owner] = f"import {owner} as {alias}"
            return f"{alias}.{name}"
        self.imports[owner] = f"import {owner}"
        return f"{owner}.{name}"

    def value(self, value) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if not isinstance(value, dict):
            return repr(value)
        if "import" in value:
            return self.name(value["import"])
        if "call" in value:
            return self._call(value)
        if "dict" in value:
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in value["dict"]) + "}"
        if "object" in value or "same" in value:
            return self._thing(value)
        if "module" in value:
            self.needs_later = True
            return f"built[{value['module']!r}]"
        if "tensor" in value:
            self.needs_later = True
            return f"held[{value['tensor']!r}]"
        if "method" in value:
            return f"{self.value(value['of'])}.{value['method']}"
        if "bytes" in value:
            self.imports["base64"] = "import base64"
            raw = f"torch.tensor(list(base64.b64decode({value['bytes']!r})), dtype=torch.uint8)"
            return f"{raw}.view(torch.{value['dtype']}).reshape({tuple(value['shape'])})"
        raise CannotWrite(f"of a form that is not known here: {value}")

    def _call(self, value: dict) -> str:
        path, *arguments = value["call"]
        if path == "builtins:tuple":
            members = [self.value(each) for each in arguments[0]]
            return f"({', '.join(members)}{',' if len(members) == 1 else ''})"
        words = [self.value(each) for each in arguments]
        words += [f"**{{{name!r}: {self.value(each)}}}" for name, each in value.get("with", {}).items()]
        return f"{self.name(path)}({', '.join(words)})"

    def _thing(self, value: dict) -> str:
        if "same" in value:
            number = value["same"]
            if number in self._made:
                return self._made[number]
            if number not in self._objects:
                raise CannotWrite("an object whose description was not recorded")
            value = self._objects[number]
        number = value.get("id", -1 - len(self._made))
        if number in self._made:
            return self._made[number]
        name = self._made[number] = f"thing_{len(self._made)}"
        cls = self.name(value["object"])
        self.things.append(f"{name} = new({cls})")
        lines = []
        before, self.needs_later = self.needs_later, False
        if "items" in value:
            items = self.value(value["items"])
            is_pairs = all(isinstance(each, dict) and "call" in each for each in value["items"])
            lines.append(f"{name}.update({items})" if is_pairs else f"{name}.extend({items})")
        pairs = [(repr(key), self.value(each)) for key, each in value["state"].items()]
        if self.needs_later:
            raise CannotWrite("an object that refers to modules or to the model's tensors")
        self.needs_later = before
        if pairs:
            lines.append(f"vars({name}).update({literal(pairs)})")
        self.things += lines
        return name

    def given(self, form, name: str, leaf) -> str:
        """An argument; `leaf` gives the expression of a recorded value by its name."""
        if form == ".":
            return leaf(name)
        if isinstance(form, list):
            return f"[{', '.join(self._each(form, name, leaf))}]"
        if not isinstance(form, dict):
            return repr(form)
        if "tuple" in form:
            words = list(self._each(form["tuple"], name, leaf))
            return f"({', '.join(words)}{',' if len(words) == 1 else ''})"
        if "namedtuple" in form:
            return f"{self.name(form['namedtuple'])}({', '.join(self._each(form['members'], name, leaf))})"
        if "unknown" in form:
            raise CannotWrite(f"a {form['unknown'].replace(':', '.')}, which is not looked into")
        kind = next((each for each in ("dict", "mapping", "dataclass") if each in form), None)
        if kind is None:
            return self.value(form)
        members = form["dict"] if kind == "dict" else form["members"]
        pairs = [(repr(key), self.given(each, f"{name}.{key}", leaf)) for key, each in members]
        table = "{" + ", ".join(f"{key}: {each}" for key, each in pairs) + "}"
        return table if kind == "dict" else f"{self.name(form[kind])}({'**' if kind == 'dataclass' else ''}{table})"

    def _each(self, forms: list, name: str, leaf):
        return (self.given(each, f"{name}.{position}", leaf) for position, each in enumerate(forms))


def literal(pairs: list[tuple[str, str]], taken: int = 0) -> str:
    """A dict, over several lines where it does not fit into one of which `taken` columns are used."""
    return _filled("{", [f"{key}: {value}" for key, value in pairs], "}", taken)


def names(words: list[str], taken: int = 0) -> str:
    return _filled("[", [repr(word) for word in words], "]", taken)


def _filled(begin: str, parts: list[str], end: str, taken: int) -> str:
    if taken + sum(len(part) + 2 for part in parts) <= _WIDTH:
        return begin + ", ".join(parts) + end
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) + 6 > _WIDTH:
            lines.append("")
        lines[-1] += f"{part}, "
    return begin + "\n" + "".join(f"    {line.rstrip()}\n" for line in lines) + end
