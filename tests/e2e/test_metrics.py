"""What operators see: /metrics by a parser of the Prometheus format, /live, and the log."""
import json
import os
import re
import socket
import subprocess
import threading
import time

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

import conftest

SECONDS = 60  # ends a test that hangs


def scrape(server):
    return requests.get(server.url + "/metrics", timeout=10).text


def samples(text):
    """(name, labels) to value."""
    return {(s.name, tuple(sorted(s.labels.items()))): s.value
            for family in text_string_to_metric_families(text) for s in family.samples}


def value(text, name, **labels):
    return samples(text)[name, tuple(sorted(labels.items()))]


def counters(text):
    return {key: number for family in text_string_to_metric_families(text)
            if family.type in ("counter", "histogram") for key, number in
            (((s.name, tuple(sorted(s.labels.items()))), s.value) for s in family.samples)}


def adds_up(text):
    now = samples(text)
    finished = sum(n for (name, _), n in now.items() if name == "pagoda_requests_finished_total")
    running = now["pagoda_requests_running", ()]
    by_len = sum(n for (name, _), n in now.items()
                 if name == "pagoda_requests_running_by_prompt_len")
    assert by_len == running
    assert now["pagoda_requests_started_total", ()] == (
        finished + running + now["pagoda_requests_waiting", ()])
    return finished


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def open_stream(server, **fields):
    fields = {"prompt": "Once", "max_tokens": 500, "ignore_eos": True, "stream": True, **fields}
    data = json.dumps(fields).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                       + str(len(data)).encode() + b"\r\n\r\n" + data)
    return connection


def check_format(text):
    for kind in ("HELP", "TYPE"):
        names = re.findall(rf"^# {kind} (\S+)", text, re.MULTILINE)
        assert len(names) == len(set(names)) and names, kind
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE):
        assert (kind == "counter") == name.endswith("_total") or kind == "histogram", name
        assert kind in ("counter", "gauge", "histogram")
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.samples, family.name


def test_format(server):
    server.complete(prompt="x", max_tokens=2)
    text = scrape(server)
    check_format(text)
    assert text.endswith("\n") and "vllm:" not in text
    for name in ("process_resident_memory_bytes", "process_open_fds", "pagoda_http_connections",
                 "process_start_time_seconds"):
        assert value(text, name) > 0, name
    assert value(text, "process_cpu_seconds_total") > 0
    build = [s.labels for f in text_string_to_metric_families(text) for s in f.samples
             if s.name == "pagoda_build_info"]
    assert len(build) == 1 and build[0]["model"] == "demo" and build[0]["version"].count(".") == 2
    assert build[0]["kernels"]


def test_mass_abort(start):
    """O24: four streams and two queued ones leave at once, and nothing is sent any more."""
    server = start("--max-num-seqs", "4")
    before = scrape(server)
    running = [open_stream(server, prompt=f"Story {i}") for i in range(4)]
    for connection in running:
        received = b""
        while received.count(b"data: ") < 5:
            received += connection.recv(65536)
    queued = [open_stream(server, prompt="word " * 7000) for _ in range(2)]
    wait_for(lambda: value(scrape(server), "pagoda_requests_waiting") == 2)
    busy = scrape(server)
    adds_up(busy)
    assert value(busy, "pagoda_requests_running") == 4 and value(busy, "pagoda_kv_usage_ratio") > 0
    for connection in queued + running:
        connection.close()
    wait_for(lambda: value(scrape(server), "pagoda_requests_finished_total", reason="abort") == 6)
    after = scrape(server)
    assert adds_up(after) == 6
    for name in ("pagoda_requests_running", "pagoda_requests_waiting", "pagoda_kv_usage_ratio"):
        assert value(after, name) == 0, name
    for state in ("in_use", "promised"):
        assert value(after, "pagoda_kv_blocks", state=state) == 0
    # The two that came to no token are in no histogram of an answer, and the four only as far as
    # they came. (Of the two one may have begun when it was seen to be gone last.)
    assert 4 <= value(after, "pagoda_request_queue_seconds_count") <= 6
    for name, count in [("time_to_first_token_seconds", 4), ("request_prefill_seconds", 4),
                        ("request_decode_seconds", 0), ("request_seconds", 0),
                        ("request_run_seconds", 0), ("request_prompt_tokens", 0),
                        ("request_generation_tokens", 0)]:
        assert value(after, f"pagoda_{name}_count") == count, name
    wait_for(lambda: value(scrape(server), "pagoda_admitted_requests") == 0)
    assert value(scrape(server), "pagoda_admitted_body_bytes") == 0
    for old, new in [(before, busy), (busy, after)]:
        now = counters(new)
        assert all(now[key] >= number for key, number in counters(old).items())


def test_every_scrape_adds_up(server):
    """Under load with clients that leave, each scrape is one moment and no counter goes back."""
    over = threading.Event()

    def client(i):
        while not over.is_set():
            connection = open_stream(server, prompt=f"Tale {i}", max_tokens=3 + i,
                                     n=1 + i % 2)
            data = b""
            for _ in range(i):  # pieces of any size: a fast answer is over in one, or refused
                if b"[DONE]" not in data and b'"error"' not in data:
                    data += connection.recv(4096)
            connection.close()

    clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for each in clients:
        each.start()
    last = counters(scrape(server))
    try:
        for _ in range(40):
            text = scrape(server)
            adds_up(text)
            now = counters(text)
            assert all(now[key] >= number for key, number in last.items())
            last = now
    finally:
        over.set()
        for each in clients:
            each.join()


def test_histograms_count_what_was_sent(start):
    server = start()
    server.complete(prompt=[5] * 40, max_tokens=1, ignore_eos=True)
    server.complete(prompt=[6] * 40, max_tokens=7, ignore_eos=True, n=2, temperature=1)
    server.complete(prompt=[7] * 300, max_tokens=1, ignore_eos=True)
    text = scrape(server)
    for name, count in [
            ("time_to_first_token_seconds", 4), ("request_queue_seconds", 4),
            ("request_prefill_seconds", 4), ("request_decode_seconds", 4),
            ("request_run_seconds", 4), ("request_seconds", 4), ("inter_token_seconds", 12),
            ("request_time_per_output_token_seconds", 2), ("request_prompt_tokens", 4),
            ("request_generation_tokens", 4), ("request_n", 3), ("http_request_body_bytes", 3)]:
        assert value(text, f"pagoda_{name}_count") == count, name
    assert value(text, "pagoda_request_prompt_tokens_sum") == 40 + 2 * 40 + 300
    assert value(text, "pagoda_request_prompt_tokens_bucket", le="64") == 3
    assert value(text, "pagoda_request_generation_tokens_sum") == 1 + 2 * 7 + 1
    assert value(text, "pagoda_request_n_sum") == 4
    assert value(text, "pagoda_generation_tokens_total") == 16
    assert value(text, "pagoda_prompt_tokens_total") == 420
    n_steps = value(text, "pagoda_steps_total")
    assert value(text, "pagoda_step_seconds_count") == n_steps
    assert value(text, "pagoda_step_rows_sum") == value(text, "pagoda_computed_tokens_total")
    for part in ("plan", "forward", "sample", "handle"):
        assert value(text, "pagoda_step_part_seconds_count", part=part) == n_steps
    parts = sum(value(text, "pagoda_step_part_seconds_sum", part=part)
                for part in ("plan", "forward", "sample", "handle"))
    assert parts <= value(text, "pagoda_step_seconds_sum")
    assert adds_up(text) == 4


def test_http_requests_are_counted(start):
    server = start("--max-num-seqs", "1", "--max-queue", "1")
    held = [open_stream(server, max_tokens=2000) for _ in range(2)]
    wait_for(lambda: value(scrape(server), "pagoda_requests_waiting") == 1)
    for _ in range(3):
        assert server.post("/v1/completions", {"prompt": "x"}).status_code == 429
    for connection in held:
        connection.close()
    wait_for(lambda: value(scrape(server), "pagoda_admitted_requests") == 0)
    left = open_stream(server, max_tokens=2000, stream=False)
    wait_for(lambda: value(scrape(server), "pagoda_requests_running") == 1)
    left.close()
    wait_for(lambda: value(scrape(server), "pagoda_admitted_requests") == 0)
    assert server.post("/v1/completions", {}).status_code == 400
    assert server.post("/tokenize", {"prompt": "x"}).status_code == 200
    assert requests.get(server.url + "/nowhere/" + "x" * 300).status_code == 404
    assert requests.get(server.url + "/v1/completions").status_code == 405
    counted = {(key[1][0][1], key[1][1][1]): n for key, n in samples(scrape(server)).items()
               if key[0] == "pagoda_http_requests_total"}
    assert counted["/v1/completions", "429"] == 3 and counted["/v1/completions", "400"] == 1
    assert counted["/v1/completions", "200"] == 2  # the heads of the streams
    assert counted["/v1/completions", "499"] == 1  # left before there was an answer
    assert counted["/tokenize", "200"] == 1
    assert counted["none", "404"] == 1 and counted["none", "405"] == 1
    assert {route for route, _ in counted} <= {
        "/v1/completions", "/tokenize", "none", "/metrics", "/health"}


def test_vllm_names(start):
    server = start("--metrics-vllm-names", "--served-model-name", 'a "model"\\')
    server.complete(prompt=[5] * 40, max_tokens=3, ignore_eos=True)
    server.complete(prompt=[5] * 40, max_tokens=3, ignore_eos=True)
    text = scrape(server)
    check_format(text)
    labels = {"model_name": 'a "model"\\', "engine": "0"}
    for own, vllm in [("requests_running", "num_requests_running"),
                      ("requests_waiting", "num_requests_waiting"),
                      ("kv_usage_ratio", "kv_cache_usage_perc"),
                      ("kv_usage_ratio", "gpu_cache_usage_perc"),
                      ("prompt_tokens_total", "prompt_tokens_total"),
                      ("generation_tokens_total", "generation_tokens_total"),
                      ("preemptions_total", "num_preemptions_total"),
                      ("prompt_tokens_total", "prefix_cache_queries_total"),
                      ("prompt_tokens_cached_total", "prefix_cache_hits_total"),
                      ("time_to_first_token_seconds_count", "time_to_first_token_seconds_count"),
                      ("inter_token_seconds_sum", "inter_token_latency_seconds_sum"),
                      ("inter_token_seconds_count", "time_per_output_token_seconds_count"),
                      ("request_seconds_count", "e2e_request_latency_seconds_count"),
                      ("request_queue_seconds_count", "request_queue_time_seconds_count"),
                      ("request_prefill_seconds_sum", "request_prefill_time_seconds_sum"),
                      ("request_decode_seconds_sum", "request_decode_time_seconds_sum"),
                      ("request_run_seconds_sum", "request_inference_time_seconds_sum"),
                      ("request_prompt_tokens_sum", "request_prompt_tokens_sum"),
                      ("request_generation_tokens_sum", "request_generation_tokens_sum"),
                      ("request_n_count", "request_params_n_count"),
                      ("step_rows_sum", "iteration_tokens_total_sum")]:
        assert value(text, f"vllm:{vllm}", **labels) == value(text, f"pagoda_{own}"), vllm
    assert value(text, "vllm:prefix_cache_hits_total", **labels) == 32
    for reason, count in [("stop", 0), ("length", 2), ("abort", 0), ("error", 0)]:
        assert value(text, "vllm:request_success_total", finished_reason=reason, **labels) == count
    info = [s.labels for f in text_string_to_metric_families(text) for s in f.samples
            if s.name == "vllm:cache_config_info"]
    assert info[0]["block_size"] == "16" and int(info[0]["num_gpu_blocks"]) > 0


def test_a_long_step(start):
    """One step of some seconds: it can be seen, is reported once, and liveness comes back."""
    server = start("--max-num-batched-tokens", "2048", "--step-timeout", "200ms")
    connection = open_stream(server, prompt=[19556] * 1500, max_tokens=5)
    wait_for(lambda: requests.get(server.url + "/live").status_code == 503)
    live = requests.get(server.url + "/live")
    assert live.status_code == 503 and live.json()["status"] == "stuck"
    assert live.json()["last_step_age_ms"] > 200
    assert requests.get(server.url + "/health").status_code == 200
    stuck = scrape(server)
    assert value(stuck, "pagoda_requests_running") == 1
    assert value(stuck, "pagoda_requests_running_by_prompt_len", prompt_len="513-2048") == 1
    adds_up(stuck)
    wait_for(lambda: value(scrape(server), "pagoda_watchdog_stuck_steps_total") == 1)
    received = b""
    while b"[DONE]" not in received:
        received += connection.recv(65536)
    wait_for(lambda: requests.get(server.url + "/live").status_code == 200)
    wait_for(lambda: "the engine goes on" in server.log())
    assert value(scrape(server), "pagoda_watchdog_stuck_steps_total") == 1
    assert "1500 rows and 1 sequences" in server.log()
    assert requests.get(server.url + "/live").json()["last_step_age_ms"] == 0


# ---- The log ----

ODD_NAME = 'odd "name"\x1b[31m\n\udcff'


def test_json_log(start):
    server = start("--log-format", "json", "--served-model-name", ODD_NAME, "--log-level", "debug")
    ids = ["plain-1", 'q"uote\\1', "bad id with blanks", "t\tab", "\u00e9\u00ff", "x" * 500]
    for name in ids:
        requests.post(server.url + "/v1/completions",
                      headers={"X-Request-Id": name.encode("latin-1")},
                      json={"prompt": "secret words", "max_tokens": 2})
    odd = (b'{"model": "\xff\xfe"}', b"{",
           b'{"prompt": "x", "odd\\n\\u0000field": 1, "max_tokens": 1}')
    for body in odd:
        requests.post(server.url + "/v1/completions", data=body)
    for model in ('no\n"such', "\u0000\u001b[2J", "\ud83d\ude00" * 200):
        assert server.post("/v1/completions", {"prompt": "x", "model": model}).status_code == 404
    requests.get(server.url + "/no\x7fsuch/%0a\"route")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /\xff\xfe\x01 HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(4096)
    answer = server.complete(prompt="secret words", max_tokens=3, ignore_eos=True, stop=["zzzzz"])
    server.terminate()
    server.process.wait(10)
    records = [json.loads(line) for line in server.log_path.read_bytes().split(b"\n")[:-1]]
    for record in records:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["ts"])
        assert record["level"] in ("debug", "info", "warning", "error") and record["msg"]
    asked = [r for r in records if r["msg"] == "request"]
    by_id = {r["id"]: r for r in asked}
    assert by_id["plain-1"]["status"] == 200 and by_id['q"uote\\1']["status"] == 200
    last = [r for r in asked if r["status"] == 200][-1]
    assert last["route"] == "/v1/completions" and last["finish_reason"] == "length"
    assert last["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert last["completion_tokens"] == 3 and last["n"] == 1
    assert last["cached_tokens"] == 0 and 0 < last["ttft_ms"] <= last["total_ms"]
    assert sum(r["status"] == 404 for r in asked) >= 4
    assert sum(r["status"] == 400 for r in asked) >= 2
    assert "secret" not in server.log_path.read_text(errors="replace")


def test_prompts_are_logged_when_asked_for(start):
    server = start("--log-format", "json", "--log-prompts")
    server.complete(prompt="secret words", max_tokens=1)
    server.complete(prompt="word " * 700, max_tokens=1)
    first, second = [r for r in map(json.loads, server.log().splitlines()) if r["msg"] == "prompt"]
    assert first["prompt"] == "secret words" and len(first["prompt_ids"]) == first["prompt_tokens"]
    assert len(second["prompt"]) == 2048 and len(second["prompt_ids"]) == 256
    assert second["prompt_bytes"] == 3500 and second["prompt_tokens"] >= 700


def test_a_flood_of_refusals_does_not_fill_the_log(start):
    server = start("--max-num-seqs", "1", "--max-queue", "1")
    held = [open_stream(server, max_tokens=8000) for _ in range(2)]
    wait_for(lambda: value(scrape(server), "pagoda_requests_waiting") == 1)
    with requests.Session() as session:
        for _ in range(300):
            assert session.post(server.url + "/v1/completions", json={}).status_code == 429
    for connection in held:
        connection.close()
    server.terminate()
    server.process.wait(10)
    log = server.log()
    shown = len(re.findall(r" /v1/completions 429 ", log))
    hidden = sum(map(int, re.findall(r"(\d+) more requests ended with status 429", log)))
    assert shown + hidden == 300 and shown <= 60


@pytest.mark.parametrize("stderr", ["full", "closed", "unread"])
def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, stderr):
    server = conftest.Server.__new__(conftest.Server)
    server.log_path = tmp_path / "none.log"
    server.log_path.touch()
    server.log_file = open(server.log_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server.port = probe.getsockname()[1]
    server.url = f"http://127.0.0.1:{server.port}"
    command = [str(conftest.BIN), "serve", "demo", "--port", str(server.port), "--log-level",
               "debug"]
    reading, writing = os.pipe()
    if stderr == "full":
        server.process = subprocess.Popen(command, stderr=open("/dev/full", "w"))
    elif stderr == "closed":
        server.process = subprocess.Popen(["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command])
    else:
        server.process = subprocess.Popen(command, stderr=writing)
    try:
        server.wait_ready()
        for _ in range(50):
            requests.get(server.url + "/live", headers={"X-Request-Id": "x" * 128})
        if stderr == "unread":  # the pipe is full by now or will be, and then it breaks
            for _ in range(500):
                requests.get(server.url + "/live", headers={"X-Request-Id": "x" * 128})
            os.close(writing)
            os.close(reading)
        assert server.complete(prompt="x", max_tokens=2)
        if stderr != "closed":
            assert value(scrape(server), "pagoda_log_lines_dropped_total") > 0
        server.terminate()
        assert server.process.wait(10) == 0
    finally:
        server.stop()
