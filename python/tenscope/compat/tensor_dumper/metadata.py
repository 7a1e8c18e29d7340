"""The metadata files in Tensor Dumper's shape."""

from __future__ import annotations

import datetime
import sys

from tenscope.metadata import git, packages, runtime
from tenscope.metadata.store import MetadataStore

SHANGHAI = datetime.timezone(datetime.timedelta(hours=8))


class DumperMetadata(MetadataStore):
    def write_all(self) -> None:
        """Everything, before it returns."""
        self._write_json("runtime_info.json", self._runtime())
        self.update()

    def _runtime(self) -> dict:
        info = runtime.collect()
        info["command"]["full_command"] = " ".join(sys.argv)
        info["timestamp"] = datetime.datetime.now(SHANGHAI).isoformat()
        return info

    def _packages(self) -> dict:
        info = packages.collect(packages.LISTED)
        info["packages"] = {
            name: {"name": name, "installed": True, **entry} for name, entry in info["packages"].items()
        }
        return info

    def _packages_git(self, project_root: str) -> dict[str, dict]:
        """Only of the listed packages that have no version."""
        loaded = packages.loaded_packages(packages.all_packages(), packages.LISTED)
        return self._git_of({name: e["location"] for name, e in loaded.items() if not e["version"]}, project_root)


__all__ = ["SHANGHAI", "DumperMetadata", "git", "packages", "runtime"]
