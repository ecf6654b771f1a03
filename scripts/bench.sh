#!/usr/bin/env bash
# Measures the release build.
#   scripts/bench.sh [SCENARIO...]   side by side with a peer on the same model file, in turns
#                                    (default: decode1 decode16 prefill)
#   scripts/bench.sh tiers           what KV tiers give: prefix, replay after a restart, multiturn
#   scripts/bench.sh restore         restore, recompute and auto over read rates of the SSD; draws
#                                    build/restore.png
#   scripts/bench.sh kernels [...]   the programs of tests/bench, arguments passed on to each
# Environment:
#   PAGODA_COMPARE   the comparator (default ../shared/bench/compare.sh); it is called as
#                    COMPARATOR MODEL.gguf "COMMAND THAT SERVES ON PORT 8095" SCENARIO...
#   PAGODA_LOADGEN   the load generator of tiers (default ../shared/bench/loadgen.py)
#   PAGODA_MODEL     a GGUF file (default: the demo model)
#   ROUNDS, JSON     the comparator's: rounds of each scenario, a file for all figures
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
export PAGODA_HOME  # so that the server looks for models where setup.sh puts them

run_kernel_benches() {
  "$root/scripts/setup.sh"
  "$root/scripts/build.sh" release pagoda
  cmake -DPAGODA_BENCH=ON "$root/build/release" >/dev/null ||
    die "cmake could not add the benchmarks; run scripts/setup.sh, then this again."
  "$root/scripts/build.sh" release benches
  local bench found=false
  for bench in "$root"/build/release/bin/*_bench; do
    [[ -x $bench ]] || continue
    found=true
    say "$(basename -- "$bench")"
    "$bench" "$@"
  done
  $found || die "tests/bench has no *_bench.cc."
}

run_comparison() {
  local compare=${PAGODA_COMPARE:-$root/../shared/bench/compare.sh}
  local model=${PAGODA_MODEL:-$models/$demo_file}
  if [[ ! -f $compare ]]; then
    echo "bench.sh: there is no comparator at $compare; set PAGODA_COMPARE to one." >&2
    exit 2
  fi
  [[ $# -gt 0 ]] || set -- decode1 decode16 prefill
  "$root/scripts/setup.sh" --serve
  [[ -f $model ]] || die "there is no model at '$model'; set PAGODA_MODEL to a GGUF file."
  PAGODA_TESTS=OFF "$root/scripts/build.sh" release
  say "comparing: $*"
  bash "$compare" "$model" \
    "$(printf '%q serve %q --port 8095' "$root/build/release/bin/pagoda" "$model")" "$@"
}

run_tiers() {
  "$root/scripts/setup.sh"
  PAGODA_TESTS=OFF "$root/scripts/build.sh" release pagoda
  local scenario status=0
  for scenario in "$@"; do
    say "$scenario"
    "$root/.venv/bin/python" "$root/tests/bench/tiers_bench.py" "$scenario" \
      --png "$root/build/restore.png" || status=1
  done
  return "$status"
}

case ${1:-} in
  -h | --help) usage ;;
  kernels)
    shift
    run_kernel_benches "$@"
    ;;
  tiers) run_tiers prefix replay multiturn ;;
  restore)
    "$root/scripts/setup.sh"
    "$root/.venv/bin/pip" install --quiet matplotlib
    run_tiers restore
    ;;
  *) run_comparison "$@" ;;
esac
