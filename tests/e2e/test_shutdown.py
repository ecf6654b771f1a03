"""SIGTERM: who is served to the end, who is refused, and that the process leaves."""
import json
import signal
import socket
import threading
import time

import requests

SECONDS = 60  # ends a test that hangs


class Stream(threading.Thread):
    """A streamed completion; `events` grows as they come."""

    def __init__(self, server, **fields):
        super().__init__()
        self.server = server
        self.fields = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True,
                       "temperature": 0, "stream": True, **fields}
        self.events, self.done, self.status, self.broken = [], False, None, False
        self.start()

    def run(self):
        try:
            self.read()
        except requests.RequestException:
            self.broken = True

    def read(self):
        answer = requests.post(self.server.url + "/v1/completions", json=self.fields, stream=True,
                               timeout=SECONDS)
        self.status = answer.status_code
        for line in answer.iter_lines():
            if line == b"data: [DONE]":
                self.done = True
            elif line:
                self.events.append(json.loads(line[6:]))

    def wait_for_events(self, n):
        wait_for(lambda: len(self.events) >= n or not self.is_alive())
        assert len(self.events) >= n, self.events
        return self

    def text(self):
        return "".join(e["choices"][0]["text"] for e in self.events)

    def finish_reason(self):
        return self.events[-1]["choices"][0]["finish_reason"]


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def get(server, path):
    return requests.get(server.url + path, timeout=SECONDS)


def drain(server):
    server.terminate()
    wait_for(lambda: get(server, "/health").status_code == 503)


def test_running_streams_end_as_if_nothing_were(start):
    """O23, the HTTP half: (a) new requests, (b) readiness and liveness, exit status 0."""
    server = start()
    whole = server.complete(prompt="Once upon a time", max_tokens=200, ignore_eos=True)
    stream = Stream(server).wait_for_events(1)
    drain(server)
    n_events = len(stream.events)
    refused = requests.post(server.url + "/v1/completions", json={"prompt": "x"}, timeout=SECONDS)
    assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
    assert refused.json()["error"]["type"] == "unavailable_error"
    assert refused.headers["Connection"] == "close"
    # Tokens come between one look and the next, all the time.
    n_looks = 0
    while stream.is_alive() and len(stream.events) < 150:
        assert get(server, "/live").status_code == 200
        assert get(server, "/health").status_code == 503
        n_before = len(stream.events)
        wait_for(lambda: len(stream.events) > n_before or not stream.is_alive())
        n_looks += 1
    assert n_looks > 5 and n_events < 150
    stream.join(SECONDS)
    assert stream.status == 200 and stream.done and stream.finish_reason() == "length"
    assert stream.text() == whole["choices"][0]["text"]
    assert server.process.wait(SECONDS) == 0
    assert "the end; 0 KV blocks are in use" in server.log()


def test_queued_requests_are_refused(start):
    """Those that run go on, one whose second answer waits too; those that never ran get 503."""
    server = start("--max-num-seqs", "1")
    stream = Stream(server, n=2, temperature=1, seed=3, max_tokens=60).wait_for_events(1)
    queued_stream = Stream(server, prompt="second")
    answers = []
    whole = threading.Thread(target=lambda: answers.append(
        server.post("/v1/completions", {"prompt": "third"})))
    whole.start()
    assert server.wait_metric("pagoda_requests_waiting", 3)
    drain(server)
    whole.join(SECONDS)
    queued_stream.join(SECONDS)
    assert stream.is_alive() or stream.done
    assert answers[0].status_code == 503 and answers[0].headers["Retry-After"] == "1"
    assert answers[0].json()["error"]["message"] == "the server is shutting down"
    # The head of the other was out already: its stream says so in its last event.
    assert queued_stream.status == 200 and not queued_stream.done
    assert queued_stream.events[-1]["error"]["type"] == "unavailable_error"
    stream.join(SECONDS)
    ends = [e["choices"][0] for e in stream.events if e["choices"][0]["finish_reason"]]
    assert stream.done and {e["index"] for e in ends} == {0, 1}
    assert {e["finish_reason"] for e in ends} == {"length"}
    assert server.process.wait(SECONDS) == 0


def test_the_time_limit_ends_the_rest_with_an_error(start):
    """(c)"""
    server = start("--shutdown-timeout", "1s")
    stream = Stream(server, max_tokens=8000).wait_for_events(1)
    answers = []
    whole = threading.Thread(target=lambda: answers.append(server.post(
        "/v1/completions", {"prompt": "x", "max_tokens": 8000, "ignore_eos": True})))
    whole.start()
    assert server.wait_metric("pagoda_requests_running", 2)
    server.terminate()
    stream.join(SECONDS)
    whole.join(SECONDS)
    assert not stream.done and stream.events[-1]["error"]["type"] == "unavailable_error"
    assert len(stream.events) > 2
    assert answers[0].status_code == 503 and answers[0].headers["Retry-After"] == "1"
    assert server.process.wait(SECONDS) == 0
    assert "--shutdown-timeout is over" in server.log()
    assert "the end; 0 KV blocks are in use" in server.log()


def test_a_second_signal_ends_at_once(start):
    """(d)"""
    server = start()
    stream = Stream(server, max_tokens=8000)
    stream.wait_for_events(1)
    drain(server)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(SECONDS) == 128 + signal.SIGINT
    stream.join(SECONDS)
    assert stream.broken and not stream.done


def test_a_prompt_that_is_still_tokenized_is_not_waited_for(start):
    server = start("--shutdown-timeout", "100ms", "--max-queue", "100000",
                   "--max-body-bytes", "256MiB")
    text = "The quick brown fox jumps over the lazy dog. " * 700
    body = json.dumps({"prompt": [f"{i} {text}" for i in range(4000)], "max_tokens": 1}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                       + str(len(body)).encode() + b"\r\n\r\n" + body)
    wait_for(lambda: server.metric("pagoda_parse_tasks") == 1)
    server.terminate()
    assert server.process.wait(SECONDS) == 0
    assert "1 requests are still being parsed" in server.log()
    connection.close()


def test_a_step_that_does_not_end_is_not_waited_for(start):
    server = start("--shutdown-timeout", "100ms", "--threads", "1",
                   "--max-num-batched-tokens", "8192")
    data = json.dumps({"prompt": [19556] * 8000, "max_tokens": 2}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                       + str(len(data)).encode() + b"\r\n\r\n" + data)
    assert server.wait_metric("pagoda_requests_running", 1)
    server.terminate()
    assert server.process.wait(SECONDS) == 0
    assert "the engine's step does not end; ending without 1 answers" in server.log()
    connection.close()


def test_while_the_model_loads(start):
    server = start("--threads", "1", ready=False)

    def asked():
        try:
            return requests.get(server.url + "/health", timeout=SECONDS)
        except requests.ConnectionError:
            return None  # the port is not bound yet

    wait_for(lambda: asked() is not None)
    refused = server.post("/v1/completions", {"prompt": "x"})
    server.terminate()
    assert server.process.wait(SECONDS) == 0
    # Unless the model came first.
    if "ready" not in server.log():
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
        assert "ending at once" in server.log()


def test_an_idle_server_leaves_soon(start):
    server = start()
    server.complete(prompt="x", max_tokens=1)
    with requests.Session() as session, socket.create_connection(("127.0.0.1", server.port)):
        session.get(server.url + "/live")  # two connections stay open, one of them silent
        server.terminate()
        assert server.process.wait(5) == 0
    with socket.socket() as again:  # the port is free
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", server.port))
