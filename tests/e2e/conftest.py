"""A real server with the demo model, started once for a session on a free port."""
import json
import os
import pathlib
import pty
import select
import signal
import socket
import subprocess
import time

import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PAGODA_BIN_DIR", ROOT / "build/release/bin")) / "pagoda"
START_S = 60


class Server:
    """`pagoda serve demo` with its log in `log()`; ended by SIGTERM."""

    def __init__(self, tmp_path, *flags):
        self.log_path = tmp_path / f"server-{time.monotonic_ns()}.log"
        self.log_file = open(self.log_path, "w")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [str(BIN), "serve", "demo", "--port", str(self.port), *flags],
            stderr=self.log_file, stdout=self.log_file)

    def log(self):
        return self.log_path.read_text()

    def wait_ready(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.log()}")
            try:
                if requests.get(self.url + "/health", timeout=2).status_code == 200:
                    return self
            except requests.ConnectionError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the server is not ready: {self.log()}")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log_file.close()

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(s.split()[1]) for s in status if s.startswith("VmRSS")) * 1024

    def rss_at_rest(self):
        """Once it no longer changes: the KV pool is touched in the background."""
        before = 0
        while before != (now := self.rss_bytes()):
            before = now
            time.sleep(0.3)
        return now

    # Requests.
    def post(self, path, body, **options):
        return requests.post(self.url + path, json=body, timeout=60, **options)

    def complete(self, **fields):
        fields.setdefault("temperature", 0)
        answer = self.post("/v1/completions", fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, **fields):
        """The JSON objects of a stream; checks that [DONE] ends it."""
        fields.setdefault("temperature", 0)
        answer = self.post("/v1/completions", {**fields, "stream": True}, stream=True)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events, done = [], False
        for line in answer.iter_lines():
            if not line:
                continue
            assert line.startswith(b"data: ") and not done, line
            payload = line[6:].decode()
            if payload == "[DONE]":
                done = True
            else:
                events.append(json.loads(payload))
        assert done or "error" in events[-1]
        return events

    def metrics(self):
        """All values of /metrics by series, labels included in the name."""
        text = requests.get(self.url + "/metrics", timeout=10).text
        series = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in series}

    def metric(self, name):
        return self.metrics()[name]

    def wait_metric(self, name, value, timeout=10):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.metric(name) == value:
                return True
            time.sleep(0.02)
        return False

    def wait_written(self, timeout=30):
        """Until all that was committed lies on the SSD."""
        end = time.monotonic() + timeout
        while True:
            # The device is asked again: an answer is out before its last block is shown.
            values = self.metrics()
            blocks = {tier: values[f'pagoda_kv_tier_blocks{{tier="{tier}"}}']
                      for tier in ("device", "ssd")}
            if blocks["ssd"] == blocks["device"] > 0:
                return
            assert time.monotonic() < end, blocks
            time.sleep(0.02)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
            os.execv(str(BIN), [str(BIN), *arguments])
        self.seen = ""

    def read(self, timeout=30):
        """What comes next; nothing when the program ended."""
        assert select.select([self.fd], [], [], timeout)[0], f"no more after {self.seen!r}"
        try:
            return os.read(self.fd, 4096).decode()
        except OSError:
            return ""

    def read_until(self, text):
        while text not in self.seen:
            more = self.read()
            assert more, self.seen
            self.seen += more
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_status(self):
        while more := self.read():
            self.seen += more
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("server"))
    try:
        yield running.wait_ready()
    finally:
        running.stop()


@pytest.fixture
def start(tmp_path):
    """start(*flags): a server of this test's own."""
    servers = []

    def make(*flags, ready=True):
        servers.append(Server(tmp_path, *flags))
        return servers[-1].wait_ready() if ready else servers[-1]

    yield make
    for each in servers:
        each.stop()
