"""A client of `tenscope view`: starts it, exchanges the token for the cookie, and reads answers and tiles."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
from hand_written_run import tenscope_program

NO_BROWSER = {"SSH_CONNECTION": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": "", "WSL_DISTRO_NAME": ""}


def start_view(*words: object, environment: dict[str, str] | None = None, **options: Any) -> tuple[Any, str]:
    """Starts `tenscope view`, where there is no browser and nobody comes by SSH: the process and its first line."""
    process = subprocess.Popen(
        [tenscope_program(), "view", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | NO_BROWSER | (environment or {}),
        text=True,
        **options,
    )
    line = process.stdout.readline()
    assert line, process.communicate()
    return process, line


class RefusedError(Exception):
    """An answer with another status than 200: its status and the sentence."""

    def __init__(self, status: int, body: bytes):
        self.status = status
        self.sentence = json.loads(body)["error"]
        super().__init__(f"{status}: {self.sentence}")


@dataclass
class Tile:
    """The header of a tile, and its planes as arrays of height x width."""

    header: dict[str, Any]
    planes: dict[str, np.ndarray]

    def __getattr__(self, name: str) -> Any:
        return self.planes[name] if name in self.planes else self.header[name]


def read_tile(body: bytes) -> Tile:
    assert body[:4] == b"TST1"
    (length,) = struct.unpack_from("<I", body, 4)
    assert (8 + length) % 8 == 0, "planes are aligned to 8"
    header = json.loads(body[8 : 8 + length])
    shape = header["height"], header["width"]
    at = 8 + length
    planes = {}
    for name in header["planes"]:
        kind = np.dtype("u1" if name == "flags" else "<f4")
        count = shape[0] * shape[1]
        planes[name] = np.frombuffer(body, kind, count, at).reshape(shape)
        at += count * kind.itemsize
    assert at == len(body), "there is more than the planes"
    return Tile(header, planes)


class Viewer:
    """A running `tenscope view`. Parameters are keywords: `viewer.json("find", event=3, what="nan")`."""

    def __init__(self, *paths: object):
        self.process, line = start_view(*paths, "--no-open", "--json")
        said = json.loads(line)
        assert "error" not in said, said["error"]
        self.port = said["port"]
        self._local = threading.local()
        response = self._exchange(f"/?token={said['token']}", {})
        assert response[0] == 303
        self._cookie = {"Cookie": response[1]["Set-Cookie"].partition(";")[0]}

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        code = self.process.poll()
        self.process.kill()
        _, said = self.process.communicate()
        if kind is None:
            assert code is None, f"the viewer has ended by itself, with {code}: {said}"
            assert said == "", said

    def _exchange(self, target: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        """On the thread's own connection, and on a new one where the server has closed it."""
        for attempt in (0, 1):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self._local.connection = connection
            try:
                connection.request("GET", target, headers=headers)
                response = connection.getresponse()
                return response.status, response.headers, response.read()
            except (http.client.HTTPException, ConnectionError):
                connection.close()
                self._local.connection = None
                if attempt:
                    raise
        raise AssertionError

    def ask(self, target: str) -> tuple[int, bytes]:
        """The status and the body of a target as it is."""
        status, _, body = self._exchange(target, self._cookie)
        return status, body

    def get(self, what: str, /, **parameters: object) -> bytes:
        query = urlencode({name: value for name, value in parameters.items() if value is not None}, quote_via=quote)
        status, body = self.ask(f"/api/{what}?{query}")
        if status != 200:
            raise RefusedError(status, body)
        return body

    def json(self, what: str, /, **parameters: object) -> Any:
        return json.loads(self.get(what, **parameters))

    def tile(self, **parameters: object) -> Tile:
        return read_tile(self.get("tile", **parameters))

    def refusal(self, what: str, /, **parameters: object) -> tuple[int, str]:
        """The status and the sentence of what is refused."""
        try:
            self.get(what, **parameters)
        except RefusedError as error:
            assert error.sentence
            return error.status, error.sentence
        raise AssertionError(f"{what} {parameters} was answered")

    def answer(self, **parameters: object) -> Any:
        """What the page opens on, when it has been worked out."""
        return self.until(lambda: self.json("answer", **parameters), lambda found: found["state"] != "working")

    @staticmethod
    def until(look, is_enough, seconds: float = 60):
        """Looks again and again until it is enough, and gives what was seen."""
        end = time.monotonic() + seconds
        while not is_enough(seen := look()):
            assert time.monotonic() < end, f"not within {seconds} s: {seen}"
            time.sleep(0.02)
        return seen

    def event(self, name: str, side: str = "a", **where: object) -> int:
        """The number of the first event of a name."""
        return self.json("events", side=side, name=name, **where)["events"][0]["id"]

    def elements(self, **parameters: object) -> list[list[str]]:
        return self.json("elements", **parameters)["text"]


@contextlib.contextmanager
def viewing(*paths: object):
    """A viewer that has worked out its answer."""
    with Viewer(*paths) as viewer:
        viewer.answer()
        yield viewer
