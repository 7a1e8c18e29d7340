"""packages.json: the Python, the platform, every installed package, and where the imported ones lie."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from functools import lru_cache
from pathlib import Path

LISTED = ("torch", "numpy", "tensorflow", "jax", "pandas", "scipy")


def installed_state() -> tuple[tuple[str, tuple], ...]:
    """Another one as soon as a package was installed, removed or exchanged, or sys.path was changed."""
    return tuple((entry, _distributions_in(entry or ".", _changed_ns(entry or "."))) for entry in sys.path)


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=256)
def _distributions_in(folder: str, changed_ns: int) -> tuple:
    """The names that carry packages' versions; a program's own folder changes for many other reasons."""
    try:
        return tuple(sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info", ".egg"))))
    except OSError:
        return (changed_ns,)  # an archive


def all_packages() -> dict[str, str]:
    return _all_packages(installed_state())


@lru_cache(maxsize=1)
def _all_packages(_: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and name not in found:  # the first on sys.path is the one that is imported
            found[name] = distribution.version or ""
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _import_names() -> dict[str, str]:
    """Top-level import name -> distribution name."""
    names: dict[str, str] = {}
    for name, distributions in importlib.metadata.packages_distributions().items():
        names[name] = distributions[0]
    return names


def location_of(module) -> str | None:
    path = getattr(module, "__file__", None)
    if path is None:
        paths = list(getattr(module, "__path__", []))
        return paths[0] if paths else None
    path = Path(path)
    return str(path.parent if path.name.startswith("__init__.") else path)


def loaded_packages(versions: dict[str, str], names: tuple[str, ...] | None = None) -> dict[str, dict]:
    """The imported top-level packages that belong to a distribution (or those of `names`): version and location."""
    distributions = _import_names() if names is None else {}
    for distribution in versions if names is None else ():  # what Python 3.10 does not list under its import name
        distributions.setdefault(distribution.lower().replace("-", "_"), distribution)
    loaded = {}
    for name, module in sorted(sys.modules.items()):
        if "." in name or module is None:
            continue
        if names is None and name not in distributions:
            continue
        if names is not None and name not in names:
            continue
        location = location_of(module)
        if location is None:
            continue
        version = versions.get(distributions.get(name, name)) or getattr(module, "__version__", None)
        loaded[name] = {"version": str(version) if version else None, "location": location}
    return loaded


def imported_versions() -> dict[str, str]:
    """Import name -> version, of the packages that the program has imported so far; Python's own are not among them."""
    versions = {}
    for name, module in sorted(sys.modules.copy().items(), key=lambda item: item[0]):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names:
            continue
        try:
            version = getattr(module, "__version__", None) or importlib.metadata.version(name)
        except Exception:  # no distribution of that name; and a module may be anything that the program put there
            continue
        if isinstance(version, str):
            versions[name] = version
    return versions


def editable_installs() -> dict[str, str]:
    """Distribution name -> folder, for packages installed with `pip install -e`."""
    found = {}
    for distribution in importlib.metadata.distributions():
        try:
            text = distribution.read_text("direct_url.json")
            url = json.loads(text) if text else {}
        except (OSError, ValueError):
            continue
        if url.get("dir_info", {}).get("editable") and url.get("url", "").startswith("file://"):
            found[distribution.metadata["Name"]] = url["url"].removeprefix("file://")
    return found


def collect(names: tuple[str, ...] | None = None) -> dict:
    versions = all_packages()
    return {
        "python_version": platform.python_version(),
        "platform": sys.platform,
        "all_packages": versions,
        "packages": loaded_packages(versions, names),
    }
