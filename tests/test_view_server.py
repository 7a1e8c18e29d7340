"""tenscope view as a server: who may read, what it makes of hostile and broken clients, and how it starts and ends."""

import http.client
import json
import os
import re
import signal
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hand_written_run import tenscope as tenscope_cli
from viewer_client import start_view

ROOT = Path(__file__).resolve().parent.parent


class Program:
    """A running `tenscope view`."""

    def __init__(self, *words, environment=None):
        self.process, self.line = start_view(*words, environment=environment)
        self.url = re.search(r"http://[^ \"]+", self.line).group()
        self.host, port, self.token = re.fullmatch(r"http://(.+):(\d+)/\?token=([0-9a-f]{32})", self.url).groups()
        self.port = int(port)

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def ask(self, target, method="GET", headers=None, name=None):
        """The status, headers and body of the answer to one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for key, value in ({"Host": name or f"127.0.0.1:{self.port}"} | (headers or {})).items():
            connection.putheader(key, value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    def raw(self, data, timeout=20):
        """All that comes back for some bytes."""
        with self.connect(timeout) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
            return answer

    def cookie(self):
        status, headers, _ = self.ask(f"/?token={self.token}")
        assert status == 303
        return {"Cookie": headers["Set-Cookie"].partition(";")[0]}

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        start = time.monotonic()
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, time.monotonic() - start, out, err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with tenscope.Run(folder, name="run") as recording:
        for step in range(3):
            recording.record("weights", np.arange(12.0).reshape(3, 4) + step, step=step)
    return folder / "run"


@pytest.fixture(scope="module")
def shared(run):
    program = Program(run, "--no-open", "--json")
    yield program
    assert program.process.poll() is None, "the server has ended in between"
    program.process.kill()
    program.process.communicate()


@pytest.fixture
def started(run):
    programs = []

    def start(*words, environment=None):
        programs.append(Program(*(words or (run, "--no-open")), environment=environment))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.communicate()


def test_one_json_line_says_where_it_is(shared):
    said = json.loads(shared.line)
    assert said == {"url": shared.url, "port": shared.port, "token": shared.token}
    assert shared.host == "127.0.0.1"


@pytest.mark.parametrize(
    "target",
    ["/", "/viewer.js", "/viewer.css", "/favicon.ico", "/api/session", "/api/tile?event=0", "/api/live", "/nothing"],
)
def test_nothing_is_served_without_the_cookie(shared, target):
    for headers in ({}, {"Cookie": "a=b"}, {"Cookie": f"tenscope_{shared.port}={shared.token}"}):
        status, _, body = shared.ask(target, headers=headers)
        assert status == 403 and b"tenscope view printed" in body
        assert target.startswith("/api/") is (body[:1] == b"{")


def test_there_is_no_socket_beside_the_requests(shared):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}
    assert shared.ask("/api/live?revision=0", headers=upgrade)[0] == 403
    assert shared.ask("/api/live?revision=0", headers=upgrade | shared.cookie())[0] == 200


def test_a_wrong_token_is_refused(shared):
    almost = shared.token[:-1] + ("0" if shared.token[-1] != "0" else "1")
    for token in ("", "x", almost, shared.token + "0", shared.token[:-1], shared.token.upper() + "G"):
        status, headers, _ = shared.ask(f"/?token={token}")
        assert status == 403 and "Set-Cookie" not in headers
    assert shared.ask(f"/api/session?token={shared.token}")[0] == 403


def test_the_token_is_exchanged_for_a_cookie(shared):
    status, headers, _ = shared.ask(f"/?token={shared.token}")
    assert (status, headers["Location"], headers["Cache-Control"]) == (303, "/", "no-store")
    pair, *attributes = headers["Set-Cookie"].split("; ")
    assert set(attributes) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    name, _, value = pair.partition("=")
    assert name == f"tenscope_{shared.port}" and re.fullmatch("[0-9a-f]{32}", value) and value != shared.token
    status, headers, body = shared.ask("/", headers={"Cookie": f"other=1; {pair}; more=2"})
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert shared.token.encode() not in body and value.encode() not in body


def test_the_page_is_the_one_in_the_tree(shared):
    cookie = shared.cookie()
    for target, file, kind in [
        ("/", "index.html", "text/html"),
        ("/viewer.js", "viewer.js", "text/javascript"),
        ("/viewer.css", "viewer.css", "text/css"),
    ]:
        status, headers, body = shared.ask(target, headers=cookie)
        assert status == 200 and headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert body == (ROOT / "web" / "dist" / file).read_bytes()
    assert shared.ask("/favicon.ico", headers=cookie)[0] == 204


def test_the_viewer_answers(shared):
    status, headers, body = shared.ask("/api/session", headers=shared.cookie())
    assert status == 200 and headers["Content-Type"].startswith("application/json")
    session = json.loads(body)
    assert session["kind"] == "runs" and len(session["sides"]) == 1
    status, _, body = shared.ask("/api/nonsense", headers=shared.cookie())
    assert status == 404 and json.loads(body)["error"]


def test_headers_of_every_answer(shared):
    cookie = shared.cookie()
    asked = [
        shared.ask("/", headers=cookie),
        shared.ask("/api/session", headers=cookie),
        shared.ask("/nothing", headers=cookie),
        shared.ask("/"),
        shared.ask("/", "POST"),
        shared.ask(f"/?token={shared.token}"),
    ]
    assert [status for status, _, _ in asked] == [200, 200, 404, 403, 405, 303]
    for _, headers, _ in asked:
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'" and "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_name_that_is_not_ours_is_refused(shared):
    for name in ("evil.example", f"evil.example:{shared.port}", "127.0.0.1.evil.example", "192.168.0.1", "[::2]:1", ""):
        for target in ("/", f"/?token={shared.token}"):
            status, headers, _ = shared.ask(target, headers=shared.cookie(), name=name or " ")
            assert status == 403 and "Set-Cookie" not in headers, name
    assert shared.raw(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")
    two = f"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nCookie: {shared.cookie()['Cookie']}\r\n\r\n"
    assert shared.raw(two.encode()).startswith(b"HTTP/1.1 400 ")


def test_a_tunnel_may_end_at_another_port(shared):
    for name in ("localhost:9000", "127.0.0.1:1", "[::1]:9000", "LOCALHOST"):
        status, headers, _ = shared.ask(f"/?token={shared.token}", name=name)
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert status == 303 and cookie.startswith(f"tenscope_{name.rpartition(':')[2] if ':' in name else 80}=")
        assert shared.ask("/api/session", headers={"Cookie": cookie}, name=name)[0] == 200
        assert shared.ask("/api/session", headers={"Cookie": cookie})[0] == 403


def test_pages_of_others_are_refused(shared):
    cookie = shared.cookie()
    ours = f"http://127.0.0.1:{shared.port}"
    assert shared.ask("/api/session", headers=cookie | {"Origin": ours, "Sec-Fetch-Site": "same-origin"})[0] == 200
    assert shared.ask("/", headers=cookie | {"Sec-Fetch-Site": "none"})[0] == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": ours, "Sec-Fetch-Site": "cross-site"},
    ):
        assert shared.ask("/api/session", headers=cookie | headers)[0] == 403, headers
        assert shared.ask(f"/?token={shared.token}", headers=headers)[0] == 403, headers


def test_a_link_with_the_token_on_another_page_works(shared):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    status, headers, body = shared.ask(f"/?token={shared.token}", headers=link)
    # A redirect would not have the cookie with it, since it would still count as coming from the other site.
    assert status == 200 and b'http-equiv="refresh" content="0;url=/"' in body
    assert shared.ask("/", headers={"Cookie": headers["Set-Cookie"].partition(";")[0]})[0] == 200
    assert shared.ask("/", headers=link)[0] == 403
    assert shared.ask(f"/?token={shared.token}", headers=link | {"Sec-Fetch-Dest": "iframe"})[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "NONSENSE"])
def test_only_get_and_head_are_answered(shared, method):
    status, headers, _ = shared.ask("/", method, headers=shared.cookie())
    assert status == 405 and headers["Allow"] == "GET, HEAD"


def test_a_body_is_refused_and_the_answer_still_arrives(shared):
    with shared.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert connection.recv(20) == b"HTTP/1.1 405 Method "
    for head in (b"Content-Length: 5", b"Transfer-Encoding: chunked"):
        answer = shared.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1


def test_head_is_get_without_the_body(shared):
    cookie = shared.cookie()
    for target in ("/", "/viewer.js", "/api/session", "/nothing"):
        status, headers, body = shared.ask(target, "HEAD", headers=cookie)
        expected = shared.ask(target, headers=cookie)
        assert (status, headers.items(), body) == (expected[0], expected[1].items(), b"")
        assert int(headers["Content-Length"]) == len(expected[2])


@pytest.mark.parametrize(
    "target",
    [
        "/../etc/passwd",
        "/../../../../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "//",
        "/./",
        "/api/../../x",
        "/api/../viewer.js",
        "/api/..",
        "/api/%2e%2e/x",
        "/api//session",
        "/viewer.js/../../etc/passwd",
        "/viewer.js%00",
        "\\..\\etc\\passwd",
        "/..\\etc\\passwd",
        "http://127.0.0.1/etc/passwd",
        "file:///etc/passwd",
        "*",
        "etc/passwd",
    ],
)
def test_no_request_names_a_file(shared, target):
    cookie = shared.cookie()["Cookie"]
    request = f"GET {target} HTTP/1.1\r\nHost: localhost:{shared.port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    answer = shared.raw(request.encode())
    assert re.match(rb"HTTP/1\.1 (400|403|404) ", answer), answer[:100]
    assert b"root:" not in answer


def test_the_path_in_a_parameter_is_no_file_either(shared):
    for query in ("side=/etc/passwd", "run=../../../../etc", "event=../../x", "event=0&side=..%2f..", "run=%00"):
        for verb in ("session", "tile", "source", "event", "runs"):
            status, _, body = shared.ask(f"/api/{verb}?{query}", headers=shared.cookie())
            assert status in (200, 400, 404) and b"root:" not in body
            assert status != 200 or verb in ("session", "runs", "tile", "event"), (verb, query, body)


def test_headers_that_are_too_long(shared):
    for head in (
        b"X: " + b"a" * 20_000,
        b"\r\n".join(b"X%d: a" % i for i in range(3000)),
        b"X: " + b"a" * 5_000_000,
        b"Cookie: " + b"a=b; " * 4000,
    ):
        answer = shared.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 431 ")
    answer = shared.raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4")
    assert shared.ask("/", headers=shared.cookie() | {"X": "a" * 15_000})[0] == 200


def test_garbage(shared):
    random = np.random.default_rng(1)
    heap = [random.bytes(int(size)) for size in random.integers(1, 5000, 60)]
    heap += [b"\0", b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"GET\r\n\r\n"]
    heap += [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"]
    heap += [b"GET / HTTP/1.1\nHost: localhost\n\n", b"GET  /  HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n"]
    heap += [b"GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"]
    heap += [b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"]
    for data in heap:
        try:
            answer = shared.raw(data)
        except ConnectionError:  # closed in the middle of it
            continue
        assert answer == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", answer), (data[:80], answer[:80])
    assert shared.ask("/", headers=shared.cookie())[0] == 200


def test_answers_to_requests_in_one_go_are_in_order(shared):
    cookie = shared.cookie()["Cookie"]
    targets = ["/viewer.css", "/nothing", "/api/session", "/favicon.ico", "/api/nonsense"]
    requests = "".join(
        f"GET {target} HTTP/1.1\r\nHost: localhost:{shared.port}\r\nCookie: {cookie}\r\n\r\n" for target in targets
    )
    with shared.connect() as connection:
        connection.sendall(requests.encode())
        reader = connection.makefile("rb")
        statuses = []
        for _ in targets:
            statuses.append(int(reader.readline().split()[1]))
            length = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            reader.read(length)
    assert statuses == [200, 404, 200, 204, 404]


def test_an_old_client_is_answered_and_let_go(shared):
    answer = shared.raw(f"GET /?token={shared.token} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 303 ")


def test_clients_that_stand_still_hold_up_nobody(shared):
    cookie = shared.cookie()
    request = f"GET /viewer.js HTTP/1.1\r\nHost: localhost:{shared.port}\r\nCookie: {cookie['Cookie']}\r\n\r\n".encode()
    still = [shared.connect() for _ in range(30)]
    try:
        for i, connection in enumerate(still):
            connection.sendall((b"", b"GET / HTTP/1.1\r\nHo", request * 200)[i % 3])  # the last reads no answer
        start = time.monotonic()
        for _ in range(20):
            assert shared.ask("/api/session", headers=cookie)[0] == 200
        assert time.monotonic() - start < 10
    finally:
        for connection in still:
            connection.close()


def test_strangers_cannot_use_up_the_connections(shared):
    cookie = shared.cookie()
    strangers = [shared.connect() for _ in range(400)]
    try:
        assert shared.ask("/api/session", headers=cookie)[0] == 200
    finally:
        for connection in strangers:
            connection.close()


def test_fifty_clients_at_a_time(shared):
    cookie = shared.cookie()
    expected = {target: shared.ask(target, headers=cookie)[2] for target in ("/", "/viewer.js", "/api/names")}
    gate = threading.Barrier(50)

    def client(number):
        connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=60)
        gate.wait()
        for i in range(20):
            target = list(expected)[(number + i) % 3]
            connection.request("GET", target, headers=cookie)
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, expected[target])
        connection.close()
        return 20

    with ThreadPoolExecutor(50) as pool:
        assert sum(pool.map(client, range(50))) == 1000


def test_one_connection_serves_many_requests(shared):
    cookie = shared.cookie()
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=20)
    connection.connect()
    own, times = connection.sock.getsockname(), []
    for _ in range(200):
        start = time.perf_counter()
        connection.request("GET", "/api/session", headers=cookie)
        response = connection.getresponse()
        response.read()
        times.append(time.perf_counter() - start)
        assert response.status == 200 and connection.sock.getsockname() == own
    connection.close()
    print(f"a small GET: median {np.median(times) * 1e3:.2f} ms, 95 % {np.quantile(times, 0.95) * 1e3:.2f} ms")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_and_in_order(started, how):
    program = started()
    cookie = program.cookie()
    idle, half = program.connect(), program.connect()
    half.sendall(b"GET / HT")
    busy = http.client.HTTPConnection("127.0.0.1", program.port, timeout=20)
    busy.request("GET", "/", headers=cookie)
    busy.getresponse().read()
    code, seconds, out, err = program.end(how)
    assert code == 0 and seconds < 2 and (out, err) == ("", "")
    assert idle.recv(1) == b""
    for connection in (idle, half, busy):
        connection.close()


def test_it_survives_clients_that_leave_in_the_middle(started):
    program = started()
    cookie = program.cookie()["Cookie"]
    request = f"GET /viewer.js HTTP/1.1\r\nHost: localhost:{program.port}\r\nCookie: {cookie}\r\n\r\n".encode()
    for i in range(100):
        with program.connect() as connection:
            if i % 2:  # a reset instead of a close
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(request * 20)
    assert program.ask("/", headers={"Cookie": cookie})[0] == 200
    assert program.end()[0] == 0


def test_a_port_that_is_taken(started, run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = tenscope_cli("view", run, "--no-open", "--port", port, check=2)
        assert "in use" in result.stderr and str(port) in result.stderr and result.stdout == ""
        error = json.loads(tenscope_cli("view", run, "--no-open", "--json", "--port", port, check=2).stdout)["error"]
        assert error["code"] == "Io"
    program = started(run, "--no-open", "--port", port)
    assert program.port == port
    assert program.end()[0] == 0
    assert started(run, "--no-open", "--port", port).port == port, "the port was not free at once"


def test_two_at_a_time_have_ports_tokens_and_cookies_of_their_own(started):
    first, second = started(), started()
    assert first.port != second.port and first.token != second.token
    assert second.ask(f"/?token={first.token}")[0] == 403
    both = {"Cookie": f"{first.cookie()['Cookie']}; {second.cookie()['Cookie']}"}
    assert first.ask("/", headers=both)[0] == second.ask("/", headers=both)[0] == 200
    assert second.ask("/", headers=first.cookie())[0] == 403


def test_it_listens_on_loopback_alone(started):
    program = started()
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {local for _, local, _, state, *_ in lines if state == "0A" and local.endswith(f":{program.port:04X}")}
    assert listening == {f"0100007F:{program.port:04X}"}


def test_another_host_is_warned_of(started, run):
    program = started(run, "--no-open", "--host", "0.0.0.0")
    assert program.host == socket.gethostname()
    for name in ("10.1.2.3:80", f"{socket.gethostname()}:{program.port}", "localhost"):
        assert program.ask(f"/?token={program.token}", name=name)[0] == 303
    assert program.ask(f"/?token={program.token}", name="evil.example")[0] == 403
    code, _, _, err = program.end()
    assert code == 0 and "others on the network" in err
    assert "cannot listen on" in tenscope_cli("view", run, "--host", "192.0.2.1", check=2).stderr


def test_what_it_prints(started, run):
    program = started(run, "--no-open", environment={"SSH_CONNECTION": "10.0.0.9 5000 10.0.0.1 2222", "USER": "ada"})
    assert program.line == f"tenscope view: {program.url} (Ctrl-C ends it)\n"
    tunnel = program.process.stdout.readline()
    port = program.port
    assert tunnel == f"from the machine in front of you: ssh -N -L {port}:127.0.0.1:{port} -p 2222 ada@10.0.0.1\n"


def test_the_browser_gets_an_address_that_works_once(started, run, tmp_path):
    said = tmp_path / "said"
    browser = tmp_path / "xdg-open"
    browser.write_text(f'#!/bin/sh\necho "$1" > {said}.new && mv {said}.new {said}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DISPLAY": ":77"}
    program = started(run, environment=environment)
    for _ in range(200):
        if said.exists():
            break
        time.sleep(0.05)
    url = said.read_text().strip()
    start = f"http://127.0.0.1:{program.port}"
    assert url.startswith(f"{start}/?token=") and program.token not in url
    assert program.ask(url.removeprefix(start))[0] == 303
    assert program.ask(url.removeprefix(start))[0] == 403
    said.unlink()
    assert started(run, "--no-open", environment=environment).end()[0] == 0
    remote = started(run, environment=environment | {"SSH_CONNECTION": "10.0.0.9 5000 10.0.0.1 22"})
    assert remote.end()[0] == 0
    assert not said.exists()


def test_no_browser_is_no_error(started, run, tmp_path):
    program = started(run, environment={"PATH": str(tmp_path), "DISPLAY": ":77"})
    assert program.ask("/", headers=program.cookie())[0] == 200
    code, _, _, err = program.end()
    assert (code, err) == (0, "")


def test_without_a_path_it_is_runs(started, run, tmp_path, monkeypatch):
    (tmp_path / "runs").symlink_to(run.parent)
    monkeypatch.chdir(tmp_path)
    program = started("--no-open")
    status, _, body = program.ask("/api/runs", headers=program.cookie())
    assert status == 200 and [entry["name"] for entry in json.loads(body)["runs"]] == ["run"]


def test_what_is_not_there(run, tmp_path):
    assert "there is no run" in tenscope_cli("view", tmp_path / "nothing", check=2).stderr
    assert "there is no run" in tenscope_cli("view", run, tmp_path / "nothing", check=2).stderr
    for port in ("-1", "0", "65536", "x"):
        tenscope_cli("view", run, "--port", port, check=2)
