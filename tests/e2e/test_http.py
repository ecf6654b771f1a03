"""The listener with raw sockets: hostile bodies, limits, clients that leave, shutdown."""
import json
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
import requests


def raw(server, data, timeout=10):
    """Sends bytes and returns all that comes until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def request(path, body, headers=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
            .encode() + data)


def send(server, fields, **socket_options):
    """An open connection on which a completion was asked for."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(request("/v1/completions", fields))
    return connection


def idle(server):
    return (server.wait_metric("pagoda_requests_running", 0)
            and server.wait_metric("pagoda_requests_waiting", 0))


def test_get_routes(server):
    model = requests.get(server.url + "/v1/models").json()["data"][0]
    assert model["id"] == "demo" and model["max_model_len"] == 8192 and model["kv_block_size"] == 16
    assert model["object"] == "model" and model["owned_by"] == "pagoda"
    assert requests.get(server.url + "/health").status_code == 200
    assert requests.get(server.url + "/live").json()["status"] == "alive"
    assert requests.get(server.url + "/version").json()["version"].count(".") == 2
    metrics = requests.get(server.url + "/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    helps = [line.split()[2] for line in metrics.text.splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(set(helps)) and "pagoda_requests_started_total" in helps
    head = requests.head(server.url + "/v1/models")
    assert head.status_code == 200 and head.content == b"" and int(head.headers["Content-Length"])


def test_no_such_route(server):
    answer = requests.get(server.url + "/nowhere")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found"
    answer = requests.get(server.url + "/v1/completions")
    assert answer.status_code == 405 and answer.headers["Allow"] == "POST, OPTIONS"
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_request_id(server):
    assert requests.get(server.url + "/live", headers={"X-Request-Id": "mine-7"}).headers[
        "X-Request-Id"] == "mine-7"
    made = [requests.get(server.url + "/live").headers["X-Request-Id"] for _ in range(2)]
    assert made[0] != made[1]


def test_bodies_that_are_not_json(server):
    deep = b'{"prompt": "x", "y": ' + b"[" * 100000 + b"0" + b"]" * 100000 + b"}"
    bodies = [b"", b"{", b"[]", b"null", b'{"prompt": NaN}', b'{"prompt": "x", "top_p": Infinity}',
              b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"\x00" * 100, deep,
              b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"}"]
    for body in bodies:
        begin = time.monotonic()
        answer = requests.post(server.url + "/v1/completions", data=body, timeout=10)
        assert answer.status_code == 400, body[:60]
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert time.monotonic() - begin < 1
    sixty = '{"prompt": "x", "max_tokens": 1, "y": ' + "[" * 60 + "]" * 60 + "}"
    assert requests.post(server.url + "/v1/completions", data=sixty).status_code == 200


def test_temperature_out_of_doubles(server):
    answer = requests.post(server.url + "/v1/completions",
                           data=b'{"prompt": "x", "temperature": 1e999}')
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "temperature"


def test_large_body(start):
    server = start("--max-body-bytes", "64KB")
    answer = raw(server, request("/v1/completions", {"prompt": "x" * 3_000_000}))
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"body_too_large"' in answer
    chunked = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
               + b"20000\r\n" + b"x" * 0x20000 + b"\r\n0\r\n\r\n")
    assert raw(server, chunked).startswith(b"HTTP/1.1 413 ")
    assert server.complete(prompt="x", max_tokens=1)


def test_limits_of_lists_and_texts(server):
    for path, body, param in [
            ("/tokenize", {"prompt": "x " * (10 << 20)}, "prompt"),
            ("/detokenize", {"tokens": [1] * ((1 << 20) + 1)}, "tokens"),
            ("/v1/completions", {"prompt": [1] * 1_000_000}, "prompt"),
            ("/v1/completions", {"prompt": ["x"] * 1_000_000}, "prompt")]:
        begin = time.monotonic()
        answer = server.post(path, body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param
        assert time.monotonic() - begin < 5
    assert server.post("/detokenize", {"tokens": [1] * (1 << 20)}).status_code == 200


def test_pipelining(server):
    first = request("/tokenize", {"prompt": "one"})
    second = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
    third = request("/detokenize", {"tokens": [28120]}, "Connection: close\r\n")
    received = raw(server, first + second + third)
    assert received.count(b"HTTP/1.1 200") == 3
    assert received.index(b'"count"') < received.index(b'"alive"') < received.index(b'"prompt"')


def test_chunks_hold_whole_events(server):
    body = {"prompt": "hello", "max_tokens": 6, "stream": True, "temperature": 0}
    received = raw(server, request("/v1/completions", body, "Connection: close\r\n"))
    head, _, rest = received.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[:int(size, 16)])
        rest = rest[int(size, 16) + 2:]
    assert chunks[-1] == b""
    assert all(c.startswith(b"data: ") and c.endswith(b"\n\n") for c in chunks[:-1])
    assert chunks[-2].endswith(b"data: [DONE]\n\n")


def test_full_queue(start):
    server = start("--max-num-seqs", "1", "--max-queue", "1")
    long = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True}
    first, second = send(server, long), send(server, long)
    assert server.wait_metric("pagoda_requests_waiting", 1)
    answer = server.post("/v1/completions", {"prompt": "x"})
    assert answer.status_code == 429 and answer.headers["Retry-After"] == "1"
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert requests.get(server.url + "/metrics").status_code == 200
    first.close()
    second.close()
    assert idle(server)
    assert server.complete(prompt="x", max_tokens=1)


def test_a_client_that_left_the_queue_is_not_served(start):
    """O07: its prompt is never computed, and the one behind it starts at once."""
    server = start("--max-num-seqs", "1")
    first = send(server, {"prompt": "First", "max_tokens": 60, "ignore_eos": True, "stream": True})
    assert server.wait_metric("pagoda_requests_running", 1)
    second = send(server, {"prompt": "word " * 500, "max_tokens": 256, "ignore_eos": True})
    assert server.wait_metric("pagoda_requests_waiting", 1)
    second.close()
    assert server.wait_metric("pagoda_requests_waiting", 0, timeout=2)
    assert server.metric('pagoda_requests_finished_total{reason="abort"}') == 1
    third = server.complete(prompt="Third", max_tokens=4)
    first.close()
    assert idle(server)
    assert server.metric("pagoda_prompt_tokens_total") == 1 + third["usage"]["prompt_tokens"]
    assert server.metric('pagoda_kv_blocks{state="in_use"}') == 0


def test_a_client_that_leaves_in_prefill(start):
    server = start("--max-num-batched-tokens", "32")
    gone = send(server, {"prompt": [19556] * 8000, "max_tokens": 100})
    assert server.wait_metric("pagoda_requests_running", 1)
    gone.close()
    assert server.wait_metric("pagoda_requests_running", 0, timeout=3)
    assert server.metric('pagoda_kv_blocks{state="in_use"}') == 0
    assert server.metric("pagoda_time_to_first_token_seconds_count") == 0


def test_a_reset_stream_is_cancelled(server):
    before = server.metric('pagoda_requests_finished_total{reason="abort"}')
    connection = send(server, {"prompt": "Once", "max_tokens": 3000, "ignore_eos": True,
                               "stream": True})
    connection.recv(4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert server.wait_metric('pagoda_requests_finished_total{reason="abort"}', before + 1)
    assert idle(server)


def test_half_closed_clients_get_their_answers(server):
    for stream in (False, True):
        connection = send(server, {"prompt": "Once", "max_tokens": 40, "ignore_eos": True,
                                   "stream": stream})
        time.sleep(0.05)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
        assert b'"finish_reason":"length"' in received
        assert not stream or received.endswith(b"0\r\n\r\n")
    assert idle(server)


def test_a_reader_that_does_not_read(start):
    server = start("--slow-reader-timeout", "1s")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    # Long lists of alternatives fill the socket's buffers.
    connection.sendall(request("/v1/completions", {
        "prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True, "n": 48,
        "logprobs": 20}))
    assert server.wait_metric('pagoda_requests_finished_total{reason="abort"}', 48, timeout=40)
    assert server.complete(prompt="x", max_tokens=1)
    connection.close()


def test_draining(start):
    server = start()
    lines = []

    def read():
        for line in requests.post(server.url + "/v1/completions", stream=True, timeout=60, json={
                "prompt": "Once", "max_tokens": 200, "ignore_eos": True, "stream": True}
                ).iter_lines():
            lines.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    while not lines:
        time.sleep(0.01)
    server.terminate()
    while requests.get(server.url + "/health").status_code == 200:
        time.sleep(0.01)
    refused = server.post("/v1/completions", {"prompt": "x"})
    assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
    assert requests.get(server.url + "/live").status_code == 200
    reader.join(60)
    assert b"data: [DONE]" in lines
    assert server.process.wait(10) == 0


def test_the_drain_has_a_limit(start):
    server = start("--shutdown-timeout", "500ms")
    connection = send(server, {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True,
                               "stream": True})
    connection.recv(1)
    begin = time.monotonic()
    server.terminate()
    received = b""
    while part := connection.recv(65536):
        received += part
    assert b'data: {"error":' in received and b"shutting down" in received
    assert server.process.wait(10) == 0 and time.monotonic() - begin < 5


def test_the_drain_waits_for_a_body_on_its_way(start):
    server = start("--shutdown-timeout", "20s")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n"
                           b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        server.terminate()
        time.sleep(1)
        connection.sendall(b'{"prompt": "x"}')
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 503")
    assert server.process.wait(5) == 0


def test_a_second_signal_ends_at_once(start):
    server = start()
    connection = send(server, {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True,
                               "stream": True})
    connection.recv(1)
    server.terminate()
    while requests.get(server.url + "/health").status_code == 200:
        time.sleep(0.01)
    server.terminate()
    assert server.process.wait(3) == 128 + signal.SIGTERM


def test_request_timeout(start):
    server = start("--request-timeout", "1s")
    answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 8000, "ignore_eos": True})
    assert answer.status_code == 504 and answer.json()["error"]["type"] == "timeout_error"
    events = server.events(prompt="x", max_tokens=8000, ignore_eos=True)
    assert events[-1]["error"]["code"] == "timeout"


def test_no_prompt_in_the_log(server):
    server.complete(prompt="xylophone zeppelin", max_tokens=1)
    log = server.log()
    assert "xylophone" not in log and "/v1/completions 200 prompt=" in log


def curl(server, *arguments, data=b""):
    done = subprocess.run(["curl", "-sS", "-i", "--max-time", "30", *arguments],
                          input=data, stdout=subprocess.PIPE, check=True, timeout=60)
    return done.stdout


def test_head_and_options(server):
    for path, methods in [("/v1/models", "GET, HEAD, OPTIONS"),
                          ("/v1/completions", "POST, OPTIONS")]:
        answer = requests.options(server.url + path)
        assert answer.status_code == 204 and answer.content == b""
        assert answer.headers["Allow"] == methods and "Content-Length" not in answer.headers
    assert requests.head(server.url + "/v1/completions").status_code == 405
    assert raw(server, b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").startswith(
        b"HTTP/1.1 204 ")
    got = requests.get(server.url + "/version")
    head = requests.head(server.url + "/version")
    assert head.headers["Content-Length"] == got.headers["Content-Length"]


def test_without_a_list_of_origins_nothing_is_said_of_them(server):
    answer = requests.get(server.url + "/version", headers={"Origin": "https://a.example"})
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


def test_chunked_and_expected_bodies(server):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    url = server.url + "/tokenize"
    body = json.dumps({"prompt": "word " * 5000}).encode()
    plain = curl(server, url, "--data-binary", "@-", "-H", "Expect:", data=body)
    chunked = curl(server, url, "--data-binary", "@-", "-H", "Transfer-Encoding: chunked",
                   "-H", "Expect:", data=body)
    expected = curl(server, url, "--data-binary", "@-", "-H", "Expect: 100-continue", data=body)
    assert expected.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    for answer in (plain, chunked, expected):
        assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["count"] >= 5000
    other = curl(server, url, "--data-binary", "@-", "-H", "Expect: cake", data=b"{}")
    assert other.startswith(b"HTTP/1.1 417 ") and b'"invalid_request_error"' in other


def test_errors_and_streams_echo_the_id(server):
    headers = {"X-Request-Id": "mine-8"}
    for answer in [
            requests.get(server.url + "/nowhere", headers=headers),
            requests.get(server.url + "/v1/completions", headers=headers),
            requests.post(server.url + "/v1/completions", data=b"{", headers=headers),
            requests.post(server.url + "/v1/completions", json={"prompt": "x", "model": "other"},
                          headers=headers),
            requests.post(server.url + "/v1/completions", json={
                "prompt": "x", "max_tokens": 2, "stream": True}, headers=headers)]:
        assert answer.headers["X-Request-Id"] == "mine-8", answer.text
    broken = b"GET /version HTTP/1.1\r\nX-Request-Id: mine-9\r\nBad : x\r\n\r\n"
    assert b"X-Request-Id: mine-9\r\n" in raw(server, broken)


def test_what_is_refused_of_a_head(server):
    plain = b"GET /version HTTP/1.1\r\nHost: x\r\n"
    for status, data in [
            (431, plain + b"A: b\r\n" * 200 + b"\r\n"),
            (431, plain + b"A: " + b"b" * 20000 + b"\r\n\r\n"),
            (431, b"GET /" + b"b" * 20000),
            (400, plain + b"A: b\r\n folded\r\n\r\n"),
            (400, plain + b"A : b\r\n\r\n"),
            (400, plain + b"A: \0\r\n\r\n"),
            (400, b"GET /version HTTP/1.1\r\n\r\n"),
            (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
            (400, request("/tokenize", b"{}", "Transfer-Encoding: chunked\r\n")),
            (400, request("/tokenize", b"{}", "Content-Length: 3\r\n")),
            (501, plain + b"Transfer-Encoding: gzip\r\n\r\n")]:
        answer = raw(server, data + plain + b"\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status), (data[:80], answer)
        assert b"Connection: close" in head
        assert json.loads(body)["error"]["message"]  # one answer and nothing behind it


# ---- O22: deep nesting ----

# Threads of the C library get as much stack as the soft limit says, 8 MiB by default. The parser
# keeps its nesting on the heap, so that this much does for every thread.
SMALL_STACK = 256 << 10
N_REPEATS = 100
MAX_GROWTH = 8 << 20


def nested_bodies():
    """By item of the case: a field that nobody reads; fields that are read, in place of a text and
    inside a list; text that is JSON, which nothing may parse."""
    deep = "[" * 100_000 + "0" + "]" * 100_000
    objects = '{"a":' * 100_000 + "0" + "}" * 100_000
    yield '{"prompt": "x", "max_tokens": 1, "x": ' + deep + "}"
    yield '{"x":' + deep + "}"
    yield '{"prompt": "x", "x": ' + objects + "}"
    yield '{"prompt": ' + deep + "}"
    yield '{"prompt": ' + objects + "}"
    yield '{"prompt": [[1, ' + deep + "]]}"
    yield '{"prompt": "x", "logit_bias": ' + objects + "}"
    yield '{"prompt": "x", "stop": ' + deep + "}"
    yield '{"prompt": "x", "stream_options": ' + objects + "}"
    yield '{"prompt": "x", "messages": [{"role": "user", "content": ' + deep + "}]}"
    yield '{"prompt": ' + "[" * 100_000  # and never closed
    yield json.dumps({"prompt": deep})


@pytest.fixture
def small_stacks():
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (SMALL_STACK, hard))
    yield
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def check_deep_nesting(start):
    server = start("--kv-cache-memory-bytes", "32MiB")
    bodies = list(nested_bodies())
    begin = None
    with requests.Session() as session:
        for i in range(N_REPEATS):
            for body in bodies if i == 0 else [bodies[i % len(bodies)]]:
                answer = session.post(server.url + "/v1/completions", data=body, timeout=10)
                assert answer.status_code == 400, (body[:60], answer.text)
                assert answer.json()["error"]["type"] == "invalid_request_error"
            if i == len(bodies):
                begin = server.rss_at_rest()
    assert server.rss_bytes() - begin < MAX_GROWTH
    assert server.complete(prompt="x", max_tokens=1)
    for value in ("[" * 60 + "]" * 60, '{"a":' * 60 + "0" + "}" * 60):
        body = '{"prompt": "x", "max_tokens": 1, "y": ' + value + "}"
        assert session.post(server.url + "/v1/completions", data=body).status_code == 200


def test_o22_deep_nesting(start):
    check_deep_nesting(start)


def test_o22_deep_nesting_on_small_stacks(small_stacks, start):
    check_deep_nesting(start)
