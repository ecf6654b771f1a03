"""64 requests at once in a pool that is too small for them, a third of whose clients leave: what is
finished equals the solo answer byte for byte, and nothing is left behind.

Also for the builds with sanitizers: PAGODA_BIN_DIR=build/dev/bin pytest tests/e2e/test_stress.py
"""
import json
import os
import random
import threading
import time

import requests

N_REQUESTS = 64
WORDS = ("river stone market garden letter window morning engine paper silver cloud bridge number "
         "winter island doctor school music yellow forest").split()


def make_requests():
    rng = random.Random(5)
    stem = " ".join(rng.choice(WORDS) for _ in range(60))
    bodies = []
    for i in range(N_REQUESTS):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(3, 60)))
        body = {"prompt": f"{stem} {text}" if i % 4 == 0 else f"{i} {text}",
                "max_tokens": rng.randrange(8, 40), "ignore_eos": True}
        if i % 2:
            body |= {"temperature": 0.9, "seed": i, "top_p": 0.95}
        else:
            body |= {"temperature": 0}
        bodies.append(body)
    return bodies


def stream(server, body, leave_after=None):
    """The text and finish reason of a streamed answer; None when the client left."""
    text, reason, n_events = "", None, 0
    with requests.post(server.url + "/v1/completions", json={**body, "stream": True}, stream=True,
                       timeout=600) as answer:
        assert answer.status_code == 200, answer.text
        for line in answer.iter_lines():
            if not line or line == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            text += event["choices"][0]["text"]
            reason = event["choices"][0]["finish_reason"] or reason
            n_events += 1
            if leave_after is not None and n_events > leave_after:
                return None
    return text, reason


def held(server):
    """Threads and descriptors of the server."""
    process = f"/proc/{server.process.pid}"
    return len(os.listdir(f"{process}/task")), len(os.listdir(f"{process}/fd"))


def settled(server):
    """What it holds once no connection is on its way out."""
    now, since = held(server), time.monotonic()
    while time.monotonic() - since < 1:
        requests.get(server.url + "/health", headers={"Connection": "close"}, timeout=10)
        time.sleep(0.02)
        if held(server) != now:
            now, since = held(server), time.monotonic()
    return now


def everything_returned(server):
    return all(server.wait_metric(f"pagoda_{name}", 0, timeout=30) for name in (
        "requests_running", "requests_waiting", 'kv_blocks{state="in_use"}',
        'kv_blocks{state="promised"}'))


def run_all_at_once(server, bodies):
    answers = [None] * len(bodies)

    def client(i):
        answers[i] = stream(server, bodies[i], leave_after=i % 5 if i % 3 == 0 else None)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def check(server):
    bodies = make_requests()
    solo = [stream(server, body) for body in bodies]
    assert everything_returned(server)
    before = settled(server)
    answers = run_all_at_once(server, bodies)
    assert everything_returned(server)
    n_left = 0
    for i, answer in enumerate(answers):
        if i % 3 == 0:
            n_left += answer is None
        else:
            assert answer == solo[i], (i, bodies[i])
    assert n_left > 0
    assert server.metric("pagoda_preemptions_total") > 0
    assert server.wait_metric("pagoda_requests_running", 0)
    assert settled(server) == before
    started = server.metric("pagoda_requests_started_total")
    finished = sum(server.metric(f'pagoda_requests_finished_total{{reason="{reason}"}}')
                   for reason in ("stop", "length", "abort", "error"))
    assert started == finished == 2 * N_REQUESTS
    server.stop()
    assert server.process.returncode == 0, server.log()


def test_with_prefix_caching(start):
    check(start("--kv-cache-memory-bytes", "24MiB", "--max-num-seqs", "24"))


def test_without_prefix_caching(start):
    server = start("--kv-cache-memory-bytes", "24MiB", "--max-num-seqs", "24",
                   "--no-enable-prefix-caching")
    check_blocks = server.metric('pagoda_kv_blocks{state="free"}')
    bodies = make_requests()
    run_all_at_once(server, bodies)
    assert everything_returned(server)
    assert server.metric("pagoda_preemptions_total") > 0
    assert server.metric('pagoda_kv_blocks{state="free"}') == check_blocks
