"""Many connections and odd ones: 10,000 idle, 512 streams, slow senders, readers that stop."""
import asyncio
import contextlib
import json
import os
import resource
import socket
import threading
import time

import pytest
import requests

N_IDLE = 10_000
N_STREAMS = 512
SPARE_DESCRIPTORS = 200
# User memory of an idle connection that has been used once; the socket itself is the kernel's.
MAX_IDLE_BYTES = 4096


def raise_descriptors(wanted):
    """For this process, as the clients need as many as the server, which raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the hard limit of open files is {hard}, and the test needs {wanted}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def n_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def eventually(condition, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def everything_returned(server):
    return all(server.wait_metric(f"pagoda_{name}", 0, timeout=30) for name in (
        "requests_running", "requests_waiting", 'kv_blocks{state="in_use"}',
        'kv_blocks{state="promised"}'))


def request(path, body):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def connect(server, receive_bytes=None):
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", server.port))
    return connection


def ask(connection):
    """One request on a connection that stays open."""
    connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    received = b""
    while not received.endswith(b"}"):
        part = connection.recv(4096)
        assert part, "the server ended an idle connection"
        received += part
    assert received.startswith(b"HTTP/1.1 200 ")


def test_ten_thousand_idle_connections(start):
    raise_descriptors(N_IDLE + SPARE_DESCRIPTORS)
    server = start("--kv-cache-memory-bytes", "32MiB")
    server.complete(prompt="x", max_tokens=20, ignore_eos=True)
    descriptors, memory = n_descriptors(server), server.rss_at_rest()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(N_IDLE)]
        for connection in idle:
            ask(connection)
        assert n_descriptors(server) > N_IDLE
        each = (server.rss_bytes() - memory) / N_IDLE
        print(f"{N_IDLE} idle connections: {each:.0f} bytes of memory each")
        assert each < MAX_IDLE_BYTES
        assert requests.get(server.url + "/health").status_code == 200
        assert server.complete(prompt="The capital of France is", max_tokens=4)
        for connection in idle[::100]:
            ask(connection)
    assert eventually(lambda: n_descriptors(server) <= descriptors)
    assert everything_returned(server)


async def stream(port, i):
    """Asks for a streamed answer; returns its request id, the ids of its events and its text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": f"Stream {i}:", "max_tokens": 4, "temperature": 0, "echo": True,
                       "stream": True, "ignore_eos": True}).encode()
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: stream-{i}\r\n"
                 f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    received = (await reader.read(-1)).decode()
    writer.close()
    assert received.startswith("HTTP/1.1 200 "), received
    assert received.endswith("data: [DONE]\n\n\r\n0\r\n\r\n"), received
    events = [json.loads(line[6:]) for line in received.splitlines()
              if line.startswith("data: {")]
    request_id = next(line[14:] for line in received.splitlines()
                      if line.startswith("X-Request-Id: "))
    return (request_id, {event["id"] for event in events},
            "".join(event["choices"][0]["text"] for event in events))


def test_512_streams_at_once(start):
    raise_descriptors(N_STREAMS + SPARE_DESCRIPTORS)
    server = start("--max-num-seqs", "64", "--max-queue", "512")
    all_blocks = server.metric('pagoda_kv_blocks{state="free"}')

    async def run():
        return await asyncio.gather(*(stream(server.port, i) for i in range(N_STREAMS)))

    answers = asyncio.run(run())
    for i, (request_id, ids, text) in enumerate(answers):
        assert request_id == f"stream-{i}"
        assert len(ids) == 1 and text.startswith(f"Stream {i}:"), (i, text)
    assert len({next(iter(ids)) for _, ids, _ in answers}) == N_STREAMS
    assert everything_returned(server)
    assert all_blocks == (server.metric('pagoda_kv_blocks{state="free"}')
                          + server.metric('pagoda_kv_blocks{state="cached"}'))
    # What ran among 511 others is what it is alone.
    assert asyncio.run(stream(server.port, 300))[2] == answers[300][2]


def test_slow_loris(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nX-Slow: "
    over = threading.Event()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(64)]

        def trickle():
            n = 0
            while not over.wait(0.05):
                for i, connection in enumerate(slow):
                    # Half of them never end the head; the others do, and trickle a body.
                    byte = head[n:n + 1] or (b"s" if i % 2 else b"\r\n\r\n"[n - len(head):][:1])
                    connection.sendall(byte or b"s")
                n += 1

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            for i in range(20):
                assert requests.get(server.url + "/health").status_code == 200
                assert len(server.events(prompt=f"Number {i}", max_tokens=4, ignore_eos=True)) > 1
        finally:
            over.set()
            thread.join()
    assert everything_returned(server)


def test_a_reader_that_stops_is_dropped_while_others_run_on(start):
    server = start("--slow-reader-timeout", "1s")
    with contextlib.closing(connect(server, receive_bytes=4096)) as stopped:
        # Long lists of alternatives fill the buffers between server and client soon.
        stopped.sendall(request("/v1/completions", {
            "prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True, "n": 16,
            "logprobs": 20}))
        assert server.wait_metric("pagoda_requests_running", 16)
        n_events = 0
        with server.post("/v1/completions", {
                "prompt": "Twice", "max_tokens": 4000, "ignore_eos": True, "stream": True},
                stream=True) as other:
            lines = other.iter_lines()
            for line in lines:
                n_events += line.startswith(b"data: {")
                if n_events % 20 == 0 and server.metric("pagoda_requests_running") == 1:
                    break  # only this one is left
            assert server.metric('pagoda_requests_finished_total{reason="abort"}') == 16
            before = n_events
            for line in lines:
                n_events += line.startswith(b"data: {")
                if n_events > before + 50:
                    break
            assert n_events > before + 50
    assert everything_returned(server)
