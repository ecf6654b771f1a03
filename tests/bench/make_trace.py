#!/usr/bin/env python3
"""Makes traces for `pagoda replay`, the same ones for the same seed.

    tests/bench/make_trace.py chat|scan|agents FILE [--hours 8] [--scale 1] [--seed 1]

chat    conversations of several turns with times to think, under a few shared system prompts
scan    those, and between them long documents that are asked about once, or a few times at once
agents  loops of tool calls: long shared prefixes of tools, contexts that grow call by call with
        seconds between them, some that are started again from an earlier point, and a few chats
"""
import argparse
import json
import math
import random
import sys

BLOCK = 16


class Trace:
    """Requests of token runs. A run is (name, length); equal runs in equal places are equal."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.ids = {}
        self.lines = []
        self.n_runs = 0

    def run(self, length):
        self.n_runs += 1
        return (self.n_runs, max(1, int(length)))

    def lognormal(self, median, sigma, low, high):
        return min(high, max(low, self.random.lognormvariate(math.log(median), sigma)))

    def pick_zipf(self, items, power=1.1):
        weights = [1 / (i + 1) ** power for i in range(len(items))]
        return self.random.choices(items, weights)[0]

    def block_ids(self, runs, length):
        """Of the whole blocks in the first `length` tokens of the runs."""
        ids = []
        parent = 0
        at = 0  # tokens before this block
        run = 0
        begin = 0  # of runs[run]
        for at in range(0, length // BLOCK * BLOCK, BLOCK):
            content = []
            while True:
                name, size = runs[run]
                content.append((name, max(0, at - begin)))
                if begin + size >= at + BLOCK:
                    break
                begin += size
                run += 1
            key = (parent, tuple(content))
            if key not in self.ids:
                self.ids[key] = self.random.getrandbits(63)
            parent = self.ids[key]
            ids.append(parent)
            if begin + runs[run][1] == at + BLOCK:
                begin += runs[run][1]
                run += 1
        return ids

    def request(self, t_s, prompt, output, session, tenant):
        prompt_len = sum(size for _, size in prompt)
        # The KV of an output's last token is not computed.
        total = prompt_len + output[1] - 1
        self.lines.append((t_s, {"t_ms": round(t_s * 1000, 3), "prompt_len": prompt_len,
                                 "output_len": output[1],
                                 "blocks": self.block_ids(prompt + [output], total),
                                 "tenant": tenant, "session": session}))

    def write(self, path):
        self.lines.sort(key=lambda line: line[0])
        with open(path, "w") as file:
            head = {"pagoda_trace": 1, "block_size": BLOCK, "block_bytes": 368_640, "start_ms": 0}
            file.write(json.dumps(head) + "\n")
            for _, line in self.lines:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        return len(self.lines)


def arrivals(trace, seconds, per_hour):
    """Times of a Poisson process that is busier in the middle."""
    t = 0
    while True:
        t += trace.random.expovariate(per_hour * 1.5 / 3600)
        if t >= seconds:
            return
        if trace.random.random() < (1 + 0.5 * math.sin(math.pi * (2 * t / seconds - 0.5))) / 1.5:
            yield t


def chats(trace, seconds, per_hour):
    systems = [[trace.run(trace.lognormal(700, 0.8, 60, 4000))] for _ in range(8)]
    for t in arrivals(trace, seconds, per_hour):
        session = trace.random.getrandbits(60)
        tenant = trace.random.randrange(1, 30)
        context = list(trace.pick_zipf(systems))
        # Half are over after one turn, others go on for long.
        turns = 1 if trace.random.random() < 0.4 else 1 + int(trace.random.expovariate(1 / 6))
        for _ in range(turns):
            context = context + [trace.run(trace.lognormal(90, 1.1, 5, 6000))]
            output = trace.run(trace.lognormal(220, 0.8, 5, 2000))
            if sum(size for _, size in context) + output[1] > 30_000:
                break
            trace.request(t, context, output, session, tenant)
            context = context + [output]
            # Mostly a minute; sometimes the user comes back after a meal.
            pause = (trace.lognormal(45, 0.9, 3, 1200) if trace.random.random() < 0.88 else
                     trace.lognormal(2400, 0.7, 600, 20_000))
            t += output[1] / 40 + pause
            if t > seconds:
                break


def documents(trace, seconds, per_hour):
    system = [trace.run(250)]
    for t in arrivals(trace, seconds, per_hour):
        document = trace.run(trace.lognormal(14_000, 0.6, 3000, 60_000))
        session = trace.random.getrandbits(60)
        questions = 1 if trace.random.random() < 0.85 else trace.random.randrange(2, 5)
        for _ in range(questions):
            trace.request(t, system + [document, trace.run(40)],
                          trace.run(trace.lognormal(350, 0.5, 20, 1500)), session, 99)
            t += trace.lognormal(60, 0.8, 5, 900)


def agents(trace, seconds, per_hour):
    tools = [[trace.run(trace.lognormal(5000, 0.5, 1500, 14_000))] for _ in range(6)]
    repositories = [[trace.run(trace.lognormal(2500, 0.6, 400, 8000))] for _ in range(60)]
    for t in arrivals(trace, seconds, per_hour):
        session = trace.random.getrandbits(60)
        start = trace.pick_zipf(tools) + trace.pick_zipf(repositories, 0.9)
        start = start + [trace.run(trace.lognormal(200, 0.8, 20, 2000))]
        for attempt in range(1 if trace.random.random() < 0.75 else 2):
            context = list(start) if attempt == 0 else context[:max(3, len(context) // 2)]
            for _ in range(2 + int(trace.random.expovariate(1 / 14))):
                output = trace.run(trace.lognormal(110, 0.7, 10, 1500))
                if sum(size for _, size in context) + output[1] > 100_000:
                    break
                trace.request(t, context, output, session, 1 + session % 20)
                context = context + [output, trace.run(trace.lognormal(450, 1.1, 10, 12_000))]
                # A tool takes seconds, and now and then somebody has to agree.
                t += output[1] / 40 + (trace.lognormal(4, 1.0, 0.2, 120)
                                       if trace.random.random() < 0.95 else
                                       trace.lognormal(300, 1.0, 30, 7200))
            t += trace.lognormal(90, 0.8, 5, 1200)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("chat", "scan", "agents"))
    parser.add_argument("file")
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--scale", type=float, default=1, help="times the usual number of requests")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    trace = Trace(args.seed)
    seconds = args.hours * 3600
    if args.kind == "chat":
        chats(trace, seconds, 300 * args.scale)
    elif args.kind == "scan":
        chats(trace, seconds, 240 * args.scale)
        documents(trace, seconds, 60 * args.scale)
    else:
        agents(trace, seconds, 40 * args.scale)
        chats(trace, seconds, 60 * args.scale)
    n = trace.write(args.file)
    print(f"{args.file}: {n} requests, {len(trace.ids)} different blocks", file=sys.stderr)


if __name__ == "__main__":
    main()
