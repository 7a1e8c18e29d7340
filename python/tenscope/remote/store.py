"""A folder on a file system of fsspec: listed, read by ranges, written. What fails is a tenscope.Error in plain words,
and no credential is in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tenscope.errors import Error, IoError, NotFoundError, UnsupportedError
from tenscope.metadata.runtime import looks_secret

_PACKAGES = {"s3": "tenscope[s3]", "s3a": "tenscope[s3]", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
_LOGIN = re.compile(r"(://)[^/@\s]*:[^/@\s]*@")
_SIGNED = re.compile(r"((?:signature|credential|token|sig|key|secret|password)=)[^&\s\"']+", re.IGNORECASE)
_CHECKSUM_KEYS = ("ETag", "etag", "md5Hash", "content_md5")
_TIME_KEYS = ("mtime", "LastModified", "last_modified", "created", "updated")


@dataclass(frozen=True)
class Item:
    """A file as the store lists it. Its version is another one when its content is."""

    size: int
    version: str
    info: dict[str, Any]


class Store:
    def __init__(self, url: str, storage_options: dict[str, Any] | None = None) -> None:
        self._secrets = [*_secrets_in(storage_options or {}), *_login_of(url)]
        self.url = _LOGIN.sub(r"\1", url).rstrip("/")
        scheme = url.partition("://")[0].lower()
        try:
            import fsspec
        except ImportError as error:
            package = _PACKAGES.get(scheme, "fsspec")
            message = f"cannot read a URL: it needs the Python package fsspec (pip install '{package}'): {self.url}"
            raise UnsupportedError(message) from error
        with self.trouble("cannot reach a store"):
            try:
                self.fs, root = fsspec.core.url_to_fs(url, **(storage_options or {}))
            except ImportError as error:
                package = _PACKAGES.get(scheme, scheme)
                raise UnsupportedError(
                    f"cannot read a URL: {self._clean(error)} (pip install '{package}'): {self.url}"
                ) from error
            except ValueError as error:
                raise UnsupportedError(f"cannot read a URL: {self._clean(error)}: {self.url}") from error
        self.root = root.rstrip("/")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def trouble(self, what: str, name: str = "") -> Iterator[None]:
        where = f"{self.url}/{name}" if name else self.url
        try:
            yield
        except Error:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{what}: there is no such object: {where}") from error
        except Exception as error:
            raise IoError(f"{what}: {self._clean(error)}: {where}") from error

    def list(self) -> dict[str, Item]:
        """All files below the URL, by their names relative to it."""
        with self.trouble("cannot list a store"):
            self.fs.invalidate_cache()
            found = self.fs.find(self.root, detail=True)
        items = {}
        for path, info in found.items():
            name = path[len(self.root) :].lstrip("/")
            if path.startswith(self.root) and _is_plain(name) and info.get("type") != "directory":
                items[name] = Item(int(info.get("size") or 0), _version_of(info), info)
        return items

    def item(self, name: str) -> Item:
        with self.trouble("cannot look at an object", name):
            self.fs.invalidate_cache()
            info = self.fs.info(self.path(name))
        return Item(int(info.get("size") or 0), _version_of(info), info)

    def read(self, name: str, start: int, end: int) -> bytes:
        with self.trouble("cannot read an object", name):
            data = self.fs.cat_file(self.path(name), start=start, end=end)
            if len(data) != end - start:
                raise IoError(
                    f"cannot read an object: {end - start} bytes from {start} on were asked for, {len(data)} came; it "
                    f"has changed: {self.url}/{name}"
                )
        return data

    def _clean(self, error: BaseException) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        known = [value for name, value in os.environ.items() if looks_secret(name, value)]
        for secret in sorted({*known, *self._secrets}, key=len, reverse=True):
            if len(secret) >= 6:
                text = text.replace(secret, "***")
        return _SIGNED.sub(r"\1***", _LOGIN.sub(r"\1", text))


def local_path(url: str) -> str | None:
    """The path of a file:// URL, which needs no store; None of any other."""
    scheme, _, path = url.partition("://")
    return path if scheme.lower() in ("file", "local") else None


def _is_plain(name: str) -> bool:
    """Whether a name from a store may be one in a folder of ours."""
    return all(part not in ("", ".", "..") and "\0" not in part for part in name.split("/"))


def _version_of(info: dict[str, Any]) -> str:
    """Its checksum as the store tells it, else when it was written."""
    for keys in (_CHECKSUM_KEYS, _TIME_KEYS):
        told = [str(info[key]) for key in keys if info.get(key) is not None]
        if told:
            return " ".join(told)
    return ""


def _login_of(url: str) -> list[str]:
    login = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return [login.partition(":")[2]] if ":" in login else []


def _secrets_in(options: dict[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _secrets_in(value)
        elif isinstance(value, str) and looks_secret(name, value):
            yield value
