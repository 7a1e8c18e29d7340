"""Drop-in names of five older tools over the one core: change the import, keep the code.

Where a program puts a drop-in under the old name (`sys.modules["torchspy"] = tenscope.compat.torchspy`), `import
torchspy.saver` gives the drop-in's own submodule and not a second copy of it, so that both names share their state.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys


class _OldNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        top, _, below = name.partition(".")
        home = getattr(sys.modules.get(top), "__name__", "") if below else ""
        if not home.startswith(f"{__name__}."):
            return None
        spec = importlib.machinery.ModuleSpec(name, self)
        spec.loader_state = f"{home}.{below}"
        return spec

    def create_module(self, spec):
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = module.__spec__.loader_state


if not any(type(finder).__qualname__ == _OldNames.__qualname__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _OldNames())
