"""A real S3 server on loopback, moto's, that counts what it is asked for and can be told to fail; and the program's
answers."""

import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

TENSCOPE = Path(sys.executable).with_name("tenscope")
SECRET = "Zq8-very-secret-key-of-the-tests"


@dataclass(frozen=True)
class Request:
    method: str
    key: str  # bucket/key
    range: str
    size: int  # bytes of the body that was answered


def tenscope_cli(*words, code=0):
    done = subprocess.run([str(TENSCOPE), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and SECRET not in done.stdout + done.stderr
    return done


class S3Server:
    def __init__(self):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, *_):
                pass

        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self.url = f"http://127.0.0.1:{self._server.port}"
        self.requests = []
        self.refuse = lambda method, key: False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _answer(self, environ, start_response):
        method, key = environ["REQUEST_METHOD"], environ["PATH_INFO"].lstrip("/")
        if self.refuse(method, key):
            # A connection that is closed with something unread is reset, and the client then tries again by itself.
            is_chunked = environ.get("wsgi.input_terminated", False)
            environ["wsgi.input"].read(-1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0))
            body = b"<Error><Code>AccessDenied</Code><Message>the line is cut</Message></Error>"
            start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        body = b"".join(self._moto(environ, start_response))
        self.requests.append(Request(method, key, environ.get("HTTP_RANGE", ""), len(body)))
        return [body]

    def reads(self, ending=""):
        """Of objects, since the last clear()."""
        return [r for r in self.requests if r.method == "GET" and r.key.count("/") > 0 and r.key.endswith(ending)]

    def sent(self, ending=""):
        return [r for r in self.requests if r.method == "PUT" and r.key.endswith(ending)]

    def clear(self):
        self.requests.clear()

    def empty_bucket(self):
        import s3fs

        fs = s3fs.S3FileSystem()
        fs.invalidate_cache()
        if fs.exists("bucket"):
            fs.rm("bucket", recursive=True)
        fs.mkdir("bucket")
        self.clear()

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
