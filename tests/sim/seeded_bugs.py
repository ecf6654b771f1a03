#!/usr/bin/env python3
"""Puts one fault after the other into a copy of the tree and looks whether it is seen: by the
simulator, or by the unit tests of cache and engine.

    tests/sim/seeded_bugs.py [NAME...]

Each line: the fault, and the seed or the check that saw it. Exit status 1 when one was missed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "seeded" / "tree"
SEEDS = "1..2000"
UNITS = ("pagoda_unit_cache", "pagoda_unit_engine")

# name: (file, what stands there, what takes its place)
BUGS = {
    "skipped lock": (
        "cache/radix_tree.cc",
        "  if (node.n_locks == 0) n_evictable_ -= node.n_on[kDevice];\n  ++node.n_locks;\n",
        "  if (node.n_locks == 0 && node.begin > 2) return;\n"
        "  if (node.n_locks == 0) n_evictable_ -= node.n_on[kDevice];\n  ++node.n_locks;\n"),
    "double free": (
        "cache/kv_cache.cc",
        "free_blocks(std::span(table).subspan(static_cast<size_t>(state.n_tree)));",
        "free_blocks(std::span(table).subspan(static_cast<size_t>(\n"
        "        state.n_tree > 3 ? state.n_tree - 1 : state.n_tree)));"),
    "stale block": (
        "cache/kv_cache_tiers.cc",
        "    restore.items[index].arrived = true;\n",
        "    restore.items[index].arrived = true;\n"
        "    if (restore.items.size() > 3) restore.items.back().arrived = true;\n"),
    "missing checksum": (
        "cache/ssd_segment.cc",
        "if (base::xxh3_128(block_of(record, bytes)) == record.data_digest) "
        "return absl::OkStatus();",
        "if (std::ssize(bytes) >= record.data_bytes) return absl::OkStatus();"),
    "wrong salt": (
        "cache/identity.cc",
        "  add_text(hash, scope.salt);\n",
        "  add_text(hash, std::string());\n"),
    "lost promise": (
        "cache/kv_cache.cc",
        "  if (n_whole <= state.n_tree) return;\n",
        "  if (n_whole <= state.n_tree || n_whole > 1) return;\n"),
    "shared across salts": (
        "cache/radix_tree.cc",
        "roots_.try_emplace(std::pair(scope.salt, scope.adapter))",
        "roots_.try_emplace(std::pair(std::string(), scope.adapter))"),
    "a copy of another key": (
        "cache/host_tier.cc",
        "const int32_t slot = it->second;",
        "const int32_t slot = slots_.size() > 9 && it->second > 0 ? it->second - 1 : it->second;"),
}


def run(*command, **options):
    return subprocess.run(command, cwd=COPY, capture_output=True, text=True, **options)


def copy_tree():
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in files.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, COPY / name)


def build():
    built = run("scripts/build.sh", "release", "pagoda_sim", *UNITS,
                env={**os.environ, "PAGODA_TESTS": "ON"})
    if built.returncode != 0:
        sys.exit(built.stdout[-3000:] + built.stderr[-3000:])


def look():
    """Who says what of the tree as it is; empty: nobody anything."""
    ran = run("build/release/bin/pagoda_sim", "--seeds", SEEDS, timeout=900)
    if ran.returncode != 0:
        said = (ran.stdout + ran.stderr).strip().splitlines()
        return re.sub(r"\s+", " ", said[0])[:110] if said else f"exit status {ran.returncode}"
    for unit in UNITS:
        ran = run(f"build/release/bin/{unit}", "--gtest_filter=-SsdCrash*", timeout=900)
        if ran.returncode != 0:
            failed = re.findall(r"FAILED  \] (\S+)", ran.stdout)
            return f"unit test {failed[0]}" if failed else f"{unit} ended by {ran.returncode}"
    return ""


def main():
    names = sys.argv[1:] or list(BUGS)
    copy_tree()
    build()
    if said := look():
        sys.exit(f"without any fault: {said}")
    missed = 0
    for name in names:
        file, old, new = BUGS[name]
        path = COPY / file
        text = path.read_text()
        if old not in text:
            sys.exit(f"{name}: {file} has changed; mend the fault in {__file__}")
        path.write_text(text.replace(old, new, 1))
        build()
        said = look()
        print(f"{name}: {said or 'MISSED'}", flush=True)
        missed += not said
        path.write_text(text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
