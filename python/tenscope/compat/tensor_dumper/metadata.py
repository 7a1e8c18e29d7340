"""The metadata files in Tensor Dumper's shape."""

from __future__ import annotations

import datetime
import functools
import sys

from tenscope.metadata import git, packages, runtime
from tenscope.metadata.store import PATCH, MetadataStore, excluded_folders
from tenscope.metadata.working_tree import WorkingTree

SHANGHAI = datetime.timezone(datetime.timedelta(hours=8))


class DumperMetadata(MetadataStore):
    def write_all(self) -> None:
        """Everything, before it returns."""
        self._write_json("runtime_info.json", self._runtime())
        self.update()

    def _runtime(self) -> dict:
        info = runtime.collect()
        info.pop("set_by_the_program", None)
        info["command"]["full_command"] = " ".join(sys.argv)
        info["timestamp"] = datetime.datetime.now(SHANGHAI).isoformat()
        return info

    def _packages(self) -> dict:
        info = packages.collect(packages.LISTED)
        info["packages"] = {
            name: {"name": name, "installed": True, **entry} for name, entry in info["packages"].items()
        }
        return info

    def _working_tree(self) -> WorkingTree:
        """New files have a patch of their own, so that `git apply project.patch` works where they still lie."""
        excluded = functools.partial(excluded_folders, self.folder, self.cwd)
        return WorkingTree(self.cwd, excluded, patch_name=PATCH, new_files_apart=True)

    def _imported(self) -> object:
        return tuple(name for name in packages.LISTED if name in sys.modules)

    def _package_folders(self) -> dict[str, str]:
        """Only of the listed packages that have no version."""
        loaded = packages.loaded_packages(packages.all_packages(), packages.LISTED)
        return {name: entry["location"] for name, entry in loaded.items() if not entry["version"]}


__all__ = ["SHANGHAI", "DumperMetadata", "git", "packages", "runtime"]
