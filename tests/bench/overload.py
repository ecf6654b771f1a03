#!/usr/bin/env python3
"""Do running streams keep their speed while ten times more is asked for than can be done?

    tests/bench/overload.py [--rounds 7] [--seconds 15] [--streams 8] [--flags "--threads 2"]

Starts a server whose --max-num-seqs is the number of streams, so that they fill the batch and
whatever else comes waits or is refused: a difference in speed is then the cost of refusing, not of
a larger batch. First it measures how many short requests a second the server completes. A round
then runs the same streams for some seconds twice, alone and under ten times that many attempts a
second, in turns which comes first; the attempts come from a process of their own over connections
that stay open. It prints for each round the 99th percentile of the time between two tokens in both,
their ratio, and at the end the median ratio; in the last line all of it as JSON. The exit status is
1 when there was another answer than 200 and 429, or when something was not given back.

The clients use the same processors as the server, so a machine that is busy otherwise says little.
"""
import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import pathlib
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PAGODA_BIN_DIR", ROOT / "build/release/bin")) / "pagoda"
HOST = "127.0.0.1"
MAX_QUEUE = 4
OVERLOAD = 10  # attempts for each request that could be completed
TICK_S = 0.02
SHORT_TOKENS = 16
LONG_TOKENS = 6000
WORDS = "the river stone market garden letter window morning engine paper silver cloud bridge "


def http_request(body):
    data = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
            .encode() + data)


def short_request(i):
    return http_request({"prompt": f"{i} {WORDS * 8}", "max_tokens": SHORT_TOKENS,
                         "temperature": 0, "ignore_eos": True})


# ---- The server ----

class Server:
    def __init__(self, n_streams, flags):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [str(BIN), "serve", "demo", "--host", HOST, "--port", str(self.port),
             "--max-num-seqs", str(n_streams), "--max-queue", str(MAX_QUEUE),
             "--kv-cache-memory-bytes", "512MiB", "--log-level", "warn", *flags],
            stdout=self.log, stderr=self.log)
        end = time.monotonic() + 60
        while self.get("/health") is None:
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                sys.exit(f"the server does not start: {self.log.read().decode()}")
            time.sleep(0.1)

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def blocks(self, state):
        return self.metric(f'pagoda_kv_blocks{{state="{state}"}}')

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(s.split()[1]) for s in status if s.startswith("VmRSS")) * 1024

    def wait_idle(self, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.metric("pagoda_requests_running") + self.metric("pagoda_requests_waiting") == 0:
                return True
            time.sleep(0.05)
        return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


# ---- Streams that are measured ----

class Stream(asyncio.Protocol):
    """Asks for a long stream and notes when its events come."""

    def __init__(self, i):
        self.i = i
        self.status = None
        self.times = []
        self.started = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(http_request({
            "prompt": f"{self.i} {WORDS}", "max_tokens": LONG_TOKENS, "temperature": 0,
            "ignore_eos": True, "stream": True}))

    def data_received(self, data):
        now = time.perf_counter()
        if self.status is None:
            self.status = int(data[9:12])
        n_events = data.count(b"data: {")
        self.times.extend([now] * n_events)
        if n_events and not self.started.done():
            self.started.set_result(True)

    def gaps(self, begin, end):
        inside = [t for t in self.times if begin <= t <= end]
        return [b - a for a, b in zip(inside, inside[1:])]


async def open_streams(server, n_streams):
    loop = asyncio.get_running_loop()
    streams = []
    for i in range(n_streams):
        _, stream = await loop.create_connection(lambda i=i: Stream(i), HOST, server.port)
        streams.append(stream)
    await asyncio.gather(*(stream.started for stream in streams))
    return streams


def p99(values):
    return sorted(values)[int(len(values) * 0.99)] if values else float("nan")


# ---- The load ----

class Asker(asyncio.Protocol):
    """A connection that asks again and again, one request at a time."""

    def __init__(self, load):
        self.load = load
        self.received = b""
        self.asked_at = None

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, data):
        self.asked_at = time.perf_counter()
        self.transport.write(data)

    def data_received(self, data):
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        took = time.perf_counter() - self.asked_at
        self.asked_at = None
        self.received = b""
        self.load.answered(self, int(head[9:12]), took)

    def connection_lost(self, error):
        if self.asked_at is not None:
            self.load.counts["lost"] += 1
        self.load.forget(self)


class Load:
    def __init__(self, port):
        self.port = port
        self.counts = collections.Counter()
        self.longest = collections.Counter()
        self.n_asked = 0
        self.idle = []
        self.connections = set()

    def answered(self, asker, status, took):
        self.counts[status] += 1
        self.longest[status] = max(self.longest[status], took)
        self.idle.append(asker)

    def forget(self, asker):
        self.connections.discard(asker)
        if asker in self.idle:
            self.idle.remove(asker)

    async def ask(self):
        if self.idle:
            asker = self.idle.pop()
        else:
            _, asker = await asyncio.get_running_loop().create_connection(
                lambda: Asker(self), HOST, self.port)
            self.connections.add(asker)
        self.n_asked += 1
        asker.ask(short_request(self.n_asked % 100))

    async def run(self, rate, stop):
        """`rate` attempts a second, whatever the answers, until `stop` is set."""
        begin, n_ticks = time.perf_counter(), 0
        while not stop.is_set():
            n_ticks += 1
            due = int(rate * TICK_S * n_ticks)
            while self.n_asked < due:
                await self.ask()
            await asyncio.sleep(max(0, begin + n_ticks * TICK_S - time.perf_counter()))

    async def finish(self):
        """Waits for the answers that are still to come."""
        while any(asker.asked_at is not None for asker in self.connections):
            await asyncio.sleep(0.05)
        for asker in list(self.connections):
            asker.transport.close()


def run_load(port, rate, stop, results):
    async def run():
        load = Load(port)
        await load.run(rate, stop)
        asked = load.n_asked
        await load.finish()
        return {"asked": asked, "counts": dict(load.counts), "longest_429_s": load.longest[429]}

    results.put(asyncio.run(run()))


async def measure_capacity(server, n_at_once, seconds):
    """Short requests completed a second, with as many at once as run together."""
    done, end = 0, time.perf_counter() + seconds

    async def client(k):
        nonlocal done
        reader, writer = await asyncio.open_connection(HOST, server.port)
        i = k
        while time.perf_counter() < end:
            writer.write(short_request(i))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += head.startswith(b"HTTP/1.1 200 ")
            i = (i + n_at_once) % 100
        writer.close()

    await asyncio.gather(*(client(k) for k in range(n_at_once)))
    return done / seconds


# ---- A round ----

async def watch_engine(server, ages):
    while True:
        live = await asyncio.to_thread(server.get, "/live")
        ages.append(json.loads(live)["last_step_age_ms"] if live else float("inf"))
        await asyncio.sleep(0.5)


async def run_window(server, options, rate):
    """The streams for a while, under a load or, with no rate, alone."""
    streams = await open_streams(server, options.streams)
    process, load_result, ages = None, None, []
    if rate:
        stop, results = multiprocessing.Event(), multiprocessing.Queue()
        process = multiprocessing.Process(target=run_load,
                                          args=(server.port, rate, stop, results))
        process.start()
    watcher = asyncio.create_task(watch_engine(server, ages))
    await asyncio.sleep(0.5)
    begin = time.perf_counter()
    await asyncio.sleep(options.seconds)
    end = time.perf_counter()
    watcher.cancel()
    lost = [s.i for s in streams if s.status != 200 or not s.times or s.times[-1] < end - 5]
    for stream in streams:
        stream.transport.close()
    if process:
        stop.set()
        load_result = await asyncio.to_thread(results.get, True, 120)
        process.join()
    gaps = [gap for stream in streams for gap in stream.gaps(begin, end)]
    idle = await asyncio.to_thread(server.wait_idle)
    return {"p99_s": p99(gaps), "median_s": statistics.median(gaps), "n_tokens": len(gaps),
            "broken_streams": lost, "load": load_result, "step_age_ms": max(ages, default=0),
            "idle_afterwards": idle}


async def run_round(server, options, number, rate):
    windows = {}
    order = (None, rate) if number % 2 == 0 else (rate, None)
    for each in order:
        windows["loaded" if each else "alone"] = await run_window(server, options, each)
    alone, loaded = windows["alone"], windows["loaded"]
    ratio = loaded["p99_s"] / alone["p99_s"]
    load = loaded["load"]
    print(f"round {number + 1}: p99 between tokens {alone['p99_s'] * 1e3:.1f} ms alone, "
          f"{loaded['p99_s'] * 1e3:.1f} ms loaded, ratio {ratio:.2f}; median "
          f"{alone['median_s'] * 1e3:.1f} and {loaded['median_s'] * 1e3:.1f} ms; "
          f"{load['asked']} attempts, {load['counts']}, longest 429 "
          f"{load['longest_429_s'] * 1e3:.1f} ms, step age up to {loaded['step_age_ms']} ms",
          flush=True)
    return {"ratio": ratio, **windows}


def run(options):
    server = Server(options.streams, shlex.split(options.flags))
    try:
        n_blocks = server.blocks("free")
        capacity = asyncio.run(measure_capacity(server, options.streams, 4))
        rate = OVERLOAD * capacity
        print(f"{capacity:.1f} short requests a second; the load is {rate:.0f} attempts a second",
              flush=True)
        rss_before = server.rss_bytes()
        rounds = [asyncio.run(run_round(server, options, i, rate)) for i in range(options.rounds)]
        report = {
            "capacity": capacity, "rate": rate, "rounds": rounds,
            "median_ratio": statistics.median(r["ratio"] for r in rounds),
            "rss_before": rss_before, "rss_after": server.rss_bytes(),
            "blocks": n_blocks, "blocks_in_use": server.blocks("in_use"),
            "blocks_promised": server.blocks("promised"),
            "blocks_afterwards": server.blocks("free") + server.blocks("cached")}
    finally:
        exit_status = server.stop()
    report["exit_status"] = exit_status
    return report


def faults(report):
    for i, each in enumerate(report["rounds"]):
        for name in ("alone", "loaded"):
            if each[name]["broken_streams"]:
                yield f"round {i + 1}, {name}: streams {each[name]['broken_streams']} broke"
            if not each[name]["idle_afterwards"]:
                yield f"round {i + 1}, {name}: the server did not become idle"
        load = each["loaded"]["load"]
        if set(load["counts"]) - {200, 429} or sum(load["counts"].values()) != load["asked"]:
            yield f"round {i + 1}: answers {load['counts']} to {load['asked']} requests"
    if report["blocks_afterwards"] != report["blocks"]:
        yield f"{report['blocks']} blocks were free, {report['blocks_afterwards']} are"
    if report["exit_status"] != 0:
        yield f"the server ended with status {report['exit_status']}"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the server's end
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--flags", default="", help="more flags of the server")
    report = run(parser.parse_args())
    print(f"median ratio {report['median_ratio']:.2f}; memory {report['rss_before'] >> 20} MiB "
          f"before, {report['rss_after'] >> 20} MiB after")
    found = list(faults(report))
    for fault in found:
        print(f"FAULT: {fault}")
    print(json.dumps(report))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
