#!/usr/bin/env bash
# Runs every test from a fresh checkout: scripts/test.sh
# Sets up what is missing, runs scripts/check.sh, then the end-to-end tests against the release
# build, and ends with a table of times.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in
  '') ;;
  -h | --help) usage ;;
  *) die "unknown argument '$1'; one test alone: ctest --test-dir build/release -R NAME." ;;
esac

begin_stages
stage "setup" "$root/scripts/setup.sh"
"$root/scripts/check.sh"
stage "end to end" ctest --test-dir "$root/build/release" -L e2e --output-on-failure \
  --no-tests=error
say "all tests passed"
