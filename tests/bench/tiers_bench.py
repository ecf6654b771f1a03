#!/usr/bin/env python3
"""What the tiers of the KV cache give, measured with a load generator on the demo model.

    tiers_bench.py prefix                 a prompt that begins like an earlier one
    tiers_bench.py replay                 prompts, a restart, the same prompts again
    tiers_bench.py multiturn              conversations on a device pool a quarter of their size
    tiers_bench.py restore [--png FILE]   restore, recompute and auto over read rates of the SSD

Each prints one line of JSON for each measurement and one with the verdict; exit status 1 when that
isn't met. Environment: PAGODA_LOADGEN, the load generator (default ../shared/bench/loadgen.py).
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from conftest import Server  # noqa: E402

LOADGEN = os.environ.get("PAGODA_LOADGEN", str(ROOT / ".." / "shared" / "bench" / "loadgen.py"))
MIB = 1 << 20
SSD = ("--kv-ssd-size", "4GiB", "--kv-ssd-write", "eager", "--kv-ssd-daily-bytes", "1000GiB")


def show(**fields):
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value
                      for key, value in fields.items()}), flush=True)


def verdict(**checks):
    """Each check: (what was measured, the most that it may be)."""
    met = all(value <= limit for value, limit in checks.values())
    show(met=met, **{name: [round(value, 6), round(limit, 6)]
                     for name, (value, limit) in checks.items()})
    return met


@contextlib.contextmanager
def serving(folder, *flags):
    server = Server(pathlib.Path(folder), *flags).wait_ready()
    try:
        yield server
    finally:
        server.stop()


def load(server, scenario, *flags, texts=None):
    command = [sys.executable, LOADGEN, "--url", server.url, scenario, *map(str, flags)]
    if texts:
        command += ["--texts", str(texts)]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def quantile(values, histogram, q):
    """The upper bound of the bucket in which the quantile lies."""
    prefix = f'pagoda_{histogram}_bucket{{le="'
    buckets = [(float(name[len(prefix):-2]), n) for name, n in values.items()
               if name.startswith(prefix)]
    buckets.sort()
    return next((bound for bound, n in buckets if n >= q * buckets[-1][1]), 0.0)


# What runs beside it must not count as the engine's: nothing waits, and little is spent.
def engine_checks(values):
    return {"io_waits": (values["pagoda_step_io_waits_total"], 0),
            "kv_work_p99_s": (quantile(values, "kv_engine_seconds", .99), 200e-6)}


def decode_step(server, prompt):
    """Mean seconds of a step that makes one token behind this prompt, most of which is cached."""
    body = {"prompt": prompt, "temperature": 0, "ignore_eos": True}
    server.complete(**body, max_tokens=1)
    before = server.metrics()
    server.complete(**body, max_tokens=65)
    after = server.metrics()
    spent, steps = (after[f"pagoda_step_seconds_{part}"] - before[f"pagoda_step_seconds_{part}"]
                    for part in ("sum", "count"))
    return spent / steps


def prefix(folder, _):
    suffix = 8  # tokens of " other question N?"
    with serving(folder) as server:
        before = server.metrics()["pagoda_computed_tokens_total"]
        row = load(server, "prefix", "--words", 1500, "--repeat", 9)
        computed = server.metrics()["pagoda_computed_tokens_total"] - before
        cold = row["prompt_tokens"] / row["requests"]
        decode = decode_step(server, "river stone market garden " * 375)
        show(decode_step_s=decode, computed_rows=computed, **row)
        return verdict(computed_each=((computed - cold) / (row["requests"] - 1), suffix + 15),
                       ttft_warm=(row["ttft_warm"], 2 * decode + 0.005))


def replay(folder, _):
    folder = pathlib.Path(folder)
    flags = ("--kv-ssd-path", str(folder / "kv"), *SSD, "--kv-cache-memory-bytes", "700MiB")
    work = ("--requests", 16, "--words", 1200, "--out", 4, "--seed", 7)
    with serving(folder, *flags) as server:
        cold = load(server, "replay", *work, texts=folder / "cold")
        server.wait_written(timeout=120)
        show(**cold)
    with serving(folder, *flags) as server:
        assert server.wait_metric("pagoda_kv_ssd_scan_done", 1)
        before = server.metrics()
        warm = load(server, "replay", *work, texts=folder / "warm")
        after = server.metrics()
        name = "pagoda_kv_ssd_read_bytes_total"
        n_bytes = after[name] - before[name]
        # The rate of the reads of this run, from the blocks' own times: several run at once.
        blocks = 'pagoda_kv_transfer_block_seconds_sum{tier="ssd",direction="restore"}'
        rate = n_bytes / max(after[blocks] - before[blocks], 1e-9) * 8
        decode = decode_step(server, "river stone market garden " * 300)
        show(read_bytes=n_bytes, read_mb_s=rate / 1e6, decode_step_s=decode, **warm)
        same = (folder / "cold").read_text() == (folder / "warm").read_text()
        limit = max(0.10 * cold["ttft_p50"], 1.5 * n_bytes / 16 / rate + 3 * decode)
        return verdict(texts_differ=(0 if same else 1, 0), ttft=(warm["ttft_p50"], limit),
                       nothing_read=(0 if n_bytes > 0 else 1, 0), **engine_checks(after))


def multiturn(folder, options):
    folder = pathlib.Path(folder)
    work = ("--sessions", 16, "--turns", options.turns, "--words", options.words, "--out", 24,
            "--tail", 40)
    # The working set: what a server with room for all holds at the end.
    with serving(folder, "--kv-cache-memory-bytes", "3GiB") as server:
        load(server, "multiturn", *work)
        values = server.metrics()
        n_blocks = values['pagoda_kv_tier_blocks{tier="device"}']
    pool = int(n_blocks / 4) * 368_640
    show(working_set_blocks=n_blocks, pool_mib=pool / MIB)
    small = ("--kv-cache-memory-bytes", str(pool))
    rows = {}
    for name, flags in (("without", ()),
                        ("with", ("--kv-host-size", str(2 * pool), "--kv-ssd-path",
                                  str(folder / "kv"), *SSD))):
        with serving(folder, *small, *flags) as server:
            before = server.metrics()
            row = load(server, "multiturn", *work)
            values = server.metrics()
            computed = (values["pagoda_computed_tokens_total"]
                        - before["pagoda_computed_tokens_total"] - row["output_tokens"])
            rows[name] = row | {"computed": computed}
            show(tiers=name, computed_prompt_rows=computed,
                 kv_work_p99_s=quantile(values, "kv_engine_seconds", .99),
                 steps=values["pagoda_steps_total"],
                 preemptions=values["pagoda_preemptions_total"],
                 **{f"hit_{tier}": values.get(f'pagoda_kv_hit_tokens_total{{tier="{tier}"}}', 0)
                    for tier in ("device", "host", "ssd")}, **row)
    faster = rows["with"]["output_tok_s"] / rows["without"]["output_tok_s"]
    fewer = rows["without"]["computed"] / rows["with"]["computed"]
    show(output_rate_ratio=faster, computed_ratio=fewer)
    return verdict(two_over_ratio=(2 / faster, 1),
                   share_of_computed_ratio=(0.6 * fewer / faster, 1), **engine_checks(values))


def ttfts(server, prompts, n_warm):
    """Times to the first token of the prompts behind the first few, which it learns from."""
    times = []
    for i, prompt in enumerate(prompts):
        answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1,
                                                 "temperature": 0, "ignore_eos": True})
        assert answer.status_code == 200, answer.text
        if i >= n_warm:
            times.append(answer.elapsed.total_seconds())
    return times


def restore(folder, options):
    folder = pathlib.Path(folder)
    words = "river stone market garden letter window morning engine paper silver".split()
    n_warm, n_measured = 3, 4
    prompts = [f"{i} " + " ".join(words[(i * 7 + k * k + k // 9) % len(words)]
                                  for k in range(options.words))
               for i in range(n_warm + n_measured)]
    flags = ("--kv-ssd-path", str(folder / "kv"), *SSD, "--kv-cache-memory-bytes", "700MiB")
    with serving(folder, *flags) as server:
        ttfts(server, prompts, 0)
        server.wait_written(timeout=120)
    policies = ("restore", "recompute", "auto")
    table = []
    for rate in options.rates:
        times = {policy: [] for policy in policies}
        for _ in range(options.rounds):
            for policy in policies:
                limit = ("--kv-ssd-read-limit", str(rate * 1_000_000)) if rate else ()
                with serving(folder, *flags, *limit, "--kv-restore-policy", policy) as server:
                    assert server.wait_metric("pagoda_kv_ssd_scan_done", 1)
                    times[policy] += ttfts(server, prompts, n_warm)
        row = {policy: statistics.median(times[policy]) for policy in policies}
        row |= {"mb_s": rate, "auto_over_best": row["auto"] / min(row["restore"], row["recompute"])}
        table.append(row)
        show(**row)
    if options.png:
        draw(table, options.png)
    limited = [row for row in table if row["mb_s"]]
    worst = max(row["auto_over_best"] for row in limited)
    near = [row["auto_over_best"] for row in limited
            if 0.5 <= row["restore"] / row["recompute"] <= 2]
    return verdict(worst=(worst, 1.1), near_break_even=(max(near, default=9), 0.8))


def draw(table, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4))
    rows = [row for row in table if row["mb_s"]]
    for policy in ("restore", "recompute", "auto"):
        axes.plot([row["mb_s"] for row in rows], [row[policy] for row in rows], marker="o",
                  label=policy)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("SSD read rate, MB/s")
    axes.set_ylabel("time to first token, s")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    scenarios = {"prefix": prefix, "replay": replay, "multiturn": multiturn, "restore": restore}
    parser.add_argument("scenario", choices=scenarios)
    parser.add_argument("--words", type=int, default=None)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--rates", type=int, nargs="*", default=[5, 10, 15, 20, 30, 50, 100, 200])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--png")
    options = parser.parse_args()
    if options.words is None:
        options.words = {"restore": 1200}.get(options.scenario, 500)
    if not os.path.exists(LOADGEN) and options.scenario != "restore":
        sys.exit(f"there is no load generator at {LOADGEN}; set PAGODA_LOADGEN to one.")
    with tempfile.TemporaryDirectory() as folder:
        return 0 if scenarios[options.scenario](folder, options) else 1


if __name__ == "__main__":
    sys.exit(main())
