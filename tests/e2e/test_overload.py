"""A short round of tests/bench/overload.py: far more is asked for than can be done, and it is
refused, quickly forgotten and nothing of it is left behind. How fast the streams stay is measured
by the program itself, on a machine that has nothing else to do."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_GROWTH = 64 << 20


def test_overload():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/bench/overload.py"), "--rounds", "1", "--seconds", "5",
         "--streams", "4"], stdout=subprocess.PIPE, text=True, timeout=600, env=os.environ)
    # It says itself what went wrong: other answers than 200 and 429, streams that broke, blocks
    # that are not free afterwards.
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout.splitlines()[-1])
    load = report["rounds"][0]["loaded"]["load"]
    assert load["counts"]["429"] > load["counts"].get("200", 0)
    assert report["blocks_in_use"] == report["blocks_promised"] == 0
    assert report["rss_after"] - report["rss_before"] < MAX_GROWTH
