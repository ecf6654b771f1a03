#!/usr/bin/env python3
"""A server with an SSD tier, killed by SIGKILL at random moments under load and started again on
the same folder: every answer equals the cold one byte for byte, and what was committed more than a
second before the kill is found again.

    tests/bench/kill_loop.py --kills 200 [--seed 1]

Prints one line of JSON; exit status 1 when something was wrong.
"""
import argparse
import json
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from conftest import Server  # noqa: E402

WORDS = ("river stone market garden letter window morning engine paper silver cloud bridge number "
         "winter island doctor school music yellow forest").split()
BLOCK = 16
SYNC_S = 1.0  # what is older at a kill is on the disk


def make_requests(rng, n):
    """Conversations that share beginnings; some under a salt, some sampled."""
    stems = [" ".join(rng.choice(WORDS) for _ in range(60)) for _ in range(3)]
    bodies = []
    for i in range(n):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(20, 150)))
        body = {"prompt": f"{rng.choice(stems)} {text}", "max_tokens": 8, "ignore_eos": True,
                "temperature": 0}
        if i % 3 == 1:
            body |= {"temperature": 0.8, "seed": i}
        if i % 4 == 3:
            body["cache_salt"] = f"salt {i % 8}"
        bodies.append(body)
    return bodies


def ask(url, body):
    answer = requests.post(url + "/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


class KillLoop:
    def __init__(self, folder, seed, n_requests=24):
        self.folder = pathlib.Path(folder)
        self.rng = random.Random(seed)
        self.bodies = make_requests(self.rng, n_requests)
        self.committed = {}  # by request: when its last answer was over
        self.wrong = []
        self.n_answers = self.n_found = self.n_lost = self.n_ssd_tokens = 0

    def start(self, *flags):
        return Server(self.folder, *flags).wait_ready()

    def cold_answers(self):
        server = self.start("--no-enable-prefix-caching")
        try:
            self.cold = [ask(server.url, body)["choices"][0]["text"] for body in self.bodies]
        finally:
            server.stop()

    def check(self, i, answer):
        self.n_answers += 1
        self.n_ssd_tokens += answer["usage"]["pagoda"]["ssd"]
        if answer["choices"][0]["text"] != self.cold[i]:
            self.wrong.append({"request": i, "text": answer["choices"][0]["text"],
                               "cold": self.cold[i]})

    def client(self, url, seed, ending):
        rng = random.Random(seed)
        while not ending.is_set():
            i = rng.randrange(len(self.bodies))
            try:
                answer = ask(url, self.bodies[i])
            except requests.RequestException:
                return  # the kill
            self.committed[i] = time.monotonic()
            self.check(i, answer)

    def round(self):
        """One life of the server."""
        server = self.start("--kv-ssd-path", str(self.folder / "kv"), "--kv-ssd-size", "2GiB",
                            "--kv-ssd-write", "eager", "--kv-ssd-daily-bytes", "1000GiB",
                            "--kv-cache-memory-bytes", "60MiB", "--kv-restore-policy", "restore")
        try:
            # What was committed long enough before the last kill is found, once it was looked for.
            assert server.wait_metric("pagoda_kv_ssd_scan_done", 1)
            known = sorted(self.known)
            self.rng.shuffle(known)
            for i in known[:3]:
                answer = ask(server.url, self.bodies[i])
                self.check(i, answer)
                usage = answer["usage"]
                whole = (usage["prompt_tokens"] - 1) // BLOCK * BLOCK
                if usage["prompt_tokens_details"]["cached_tokens"] >= whole:
                    self.n_found += 1
                else:
                    self.n_lost += 1
                    self.wrong.append({"request": i, "lost": usage})
            ending = threading.Event()
            clients = [threading.Thread(target=self.client,
                                        args=(server.url, self.rng.random(), ending))
                       for _ in range(4)]
            for client in clients:
                client.start()
            # After some answers, so that a slow machine gets somewhere, at any moment of the next.
            target = self.n_answers + self.rng.randrange(2, 16)
            while self.n_answers < target and any(client.is_alive() for client in clients):
                time.sleep(0.01)
            time.sleep(self.rng.uniform(0, 1.5))
            killed_at = time.monotonic()
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            ending.set()
            for client in clients:
                client.join()
            self.known = {i for i, at in self.committed.items() if at < killed_at - SYNC_S}
        finally:
            server.stop()

    def run(self, n_kills):
        self.cold_answers()
        self.known = set()
        for _ in range(n_kills):
            self.round()
        return {"kills": n_kills, "answers": self.n_answers, "ssd_tokens": self.n_ssd_tokens,
                "found_again": self.n_found, "not_found_again": self.n_lost,
                "wrong": self.wrong[:5]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = KillLoop(folder, options.seed).run(options.kills)
    print(json.dumps(report))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
