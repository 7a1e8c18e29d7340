"""The command line's hand for URLs: mirrors runs, and fetches the bytes that the program is about to read.

`python -m tenscope.remote.serve FD,FD,... URL...`: the first connection gets, for each URL, a line `ok`, the mirror's
folder and the URL without a password, or a line with what went wrong. Then each connection sends lines
`OFFSET SIZE PATH` and gets `ok` or what went wrong, `CODE MESSAGE`. It ends when the connections do.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

from tenscope import remote
from tenscope.errors import Error, code_of


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the program has been told as well
    connections = [socket.socket(fileno=int(fd)) for fd in arguments[0].split(",")]
    places = []
    try:
        for url in arguments[1:]:
            place = remote.place_of(url)
            places.append(place)
            _send(connections[0], "ok", place.path, place.name)
    except Exception as error:
        _send(connections[0], _line(error))
        return 2
    threads = [threading.Thread(target=_serve, args=(connection, places)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def _serve(connection: socket.socket, places: list[remote.Place]) -> None:
    with connection, connection.makefile("r", encoding="utf-8", errors="surrogateescape") as requests:
        for request in requests:
            offset, size, path = request.rstrip("\n").split(" ", 2)
            try:
                for place in places:
                    if place.mirror is not None and path.startswith(place.path + os.sep):
                        place.mirror.fetch(path, int(offset), int(size))
                answer = "ok"
            except Exception as error:
                answer = _line(error)
            try:
                _send(connection, answer)
            except OSError:
                return


def _send(connection: socket.socket, *lines: str) -> None:
    connection.sendall("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{code_of(error) if isinstance(error, Error) else 'Io'} {text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
