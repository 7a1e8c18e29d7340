"""Programs that use torch, started without waiting for torch: a process that has imported it forks for each of them.

Overview. start(words) is subprocess.Popen([sys.executable, *words]) for two forms, `-m module` and `script.py`. The
first call starts this file as a server with a socket as its input. A request is the words, the environment and the
folder, with the ends of three pipes: for the output, the errors and the exit code. The server forks twice: one process
becomes the program, the other waits for it and writes down how it ended.

Not for tests of the start itself: what torch reads from the environment when it is imported, the order of imports,
tracebacks (they begin here), other interpreters.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading

_server = None


class Program:
    """What is left of subprocess.Popen: communicate() and returncode."""

    def __init__(self, output, errors, ending):
        self._pipes = [os.fdopen(fd, "r") for fd in (output, errors, ending)]
        self.returncode = None

    def communicate(self, timeout=None):
        texts = ["", "", ""]

        def read(i):
            with self._pipes[i] as pipe:
                texts[i] = pipe.read()

        readers = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired("a program that was started warm", timeout)
        self.returncode = int(texts[2])
        return texts[0], texts[1]


def start(words, cwd=None, env=None, kind=Program):
    global _server
    if _server is None:
        _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            # One thread: what forks must not have started others.
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            process = subprocess.Popen([sys.executable, __file__], stdin=theirs, env=environment)
        atexit.register(_stop, process, os.getpid())
    pipes = [os.pipe() for _ in range(3)]
    request = {"words": [str(word) for word in words], "cwd": str(cwd or os.getcwd()), "env": dict(env or os.environ)}
    socket.send_fds(_server, [json.dumps(request).encode()], [end for _, end in pipes])
    for _, end in pipes:
        os.close(end)
    return kind(*(begin for begin, _ in pipes))


def run(words, cwd=None, env=None, timeout=150):
    """start() and its end, as subprocess.run has it."""
    program = start(words, cwd, env)
    output, errors = program.communicate(timeout)
    return subprocess.CompletedProcess(words, program.returncode, output, errors)


def _stop(process, owner):
    if os.getpid() == owner:
        _server.close()
        process.wait()


def _serve():
    """Returns in a process that is to become a program, with its words."""
    import tenscope  # noqa: F401
    import torch
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel  # noqa: F401

    gc.freeze()  # nothing of it is looked at again by those who fork
    requests = socket.socket(fileno=os.dup(0))
    while True:
        text, fds, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not text:
            while _one_is_reaped():
                pass
            sys.exit()
        if os.fork() == 0:
            requests.close()
            if os.fork() == 0:
                os.close(fds[2])
                return _become(fds, **json.loads(text))
            os.close(fds[0])
            os.close(fds[1])
            os.write(fds[2], str(os.waitstatus_to_exitcode(os.wait()[1])).encode())
            os._exit(0)
        for fd in fds:
            os.close(fd)
        while _one_is_reaped(os.WNOHANG):
            pass


def _one_is_reaped(options=0):
    try:
        return os.waitpid(-1, options)[0] != 0
    except ChildProcessError:
        return False


def _become(fds, words, cwd, env):
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, fd in enumerate((nothing, fds[0], fds[1])):
        os.dup2(fd, place)
        os.close(fd)
    os.chdir(cwd)
    own = os.environ.get("PYTHONPATH")
    os.environ.clear()
    os.environ.update(env)
    if env.get("PYTHONPATH") != own:
        sys.path[1:1] = [os.path.abspath(folder) for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return words


if __name__ == "__main__":
    words = _serve()
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main(words[1])
    else:
        sys.argv[:] = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")
