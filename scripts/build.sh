#!/usr/bin/env bash
# Builds one preset into build/PRESET: scripts/build.sh [release|dev|tsan|fuzz] [targets]
#   release   optimised; the default
#   dev       with the address and undefined-behaviour sanitizers
#   tsan      with the thread sanitizer
#   fuzz      by clang, for libFuzzer (scripts/fuzz.sh)
# Environment:
#   PAGODA_TESTS=OFF   only the server; a new build folder is made without the tests
#   PAGODA_JOBS=N      files compiled at once (default: one a core, fewer where memory is short)
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

preset=${1:-release}
[[ $# -eq 0 ]] || shift
case $preset in
  release | dev | tsan | fuzz) ;;
  -h | --help) usage ;;
  *) die "there is no preset '$preset'; give release, dev, tsan or fuzz." ;;
esac

for tool in cmake ninja g++; do
  command -v "$tool" >/dev/null || die "$tool is missing; run scripts/setup.sh first."
done

folder=$root/build/$preset
mkdir -p "$folder"
# One build of a folder at a time. Ninja inherits the lock, so it holds also when this script is
# killed and ninja runs on.
exec 9>"$folder/.lock"
if ! flock -n 9; then
  say "waiting for another build of $preset to end"
  flock 9
fi
tests=${PAGODA_TESTS:-ON}
configured=$(sed -n 's/^PAGODA_TESTS:BOOL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
# Ninja runs CMake by itself when a CMake file changed, so configuring is for a new folder, and for
# one that was made for the server alone and is now wanted with its tests.
if [[ ! -f $folder/build.ninja || ($tests == ON && $configured != ON) ]]; then
  say "configuring build/$preset"
  log=$folder/configure.log
  if ! (cd "$root" && cmake --preset "$preset" -DPAGODA_TESTS="$tests") >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "cmake could not configure $preset; if it misses a package, run scripts/setup.sh."
  fi
fi

# A server asked for alone is built alone, also where the tests are configured.
targets=("$@")
if [[ ${#targets[@]} -eq 0 && $tests != ON ]]; then
  targets=(pagoda)
fi
say "building $preset${targets[*]:+: ${targets[*]}}"
ninja -C "$folder" -j "${PAGODA_JOBS:-$(build_jobs)}" "${targets[@]}" ||
  die "the $preset build failed; the first error above names file and line."
