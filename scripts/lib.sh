# What the other scripts share; sourced, never run. Sets `root`, the top of the tree, and `models`,
# the folder of downloaded models.
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
models=${PAGODA_HOME:-${HOME:-/root}/.cache/pagoda}/models
demo_file=SmolLM2-135M-Instruct.Q4_1.gguf

say() { printf '== %s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
  exit 1
}

# Prints the comment at the top of the script and ends it.
usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"
  exit 0
}

# Compilers to run at once: one a core, but no more than fit in memory (an optimised file of kernels
# or of HTTP templates takes up to 1.5 GiB).
build_jobs() {
  local cores memory_kb jobs
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  jobs=$((memory_kb / 1572864))
  ((jobs >= 1)) || jobs=1
  ((jobs <= cores)) || jobs=$cores
  printf '%s' "$jobs"
}

# stage NAME COMMAND...: runs the command in a subshell and notes its time for the table. A stage
# that fails ends the script; its command is said again, so that it can be run alone.
stage() {
  local name=$1 began ended code=0
  shift
  say "$name"
  began=$(date +%s%N)
  ("$@") || code=$?
  ended=$(date +%s%N)
  printf '%s\t%d\t%s\n' "$name" $(((ended - began) / 1000000)) \
    "$([[ $code -eq 0 ]] && echo ok || echo FAILED)" >>"$PAGODA_STAGES"
  if [[ $code -ne 0 ]]; then
    say "'$name' failed; its command was: $*"
    exit 1
  fi
}

# Starts the table of stages and prints it when this script ends. A script that was called by one
# with a table adds to that.
begin_stages() {
  [[ -z ${PAGODA_STAGES:-} ]] || return 0
  PAGODA_STAGES=$(mktemp)
  export PAGODA_STAGES
  trap 'print_stages; rm -f "$PAGODA_STAGES"' EXIT
}

print_stages() {
  awk -F '\t' '
    BEGIN { printf "\n%-44s %9s  %s\n", "stage", "seconds", "result" }
    { printf "%-44s %9.1f  %s\n", $1, $2 / 1000, $3; sum += $2 }
    END { printf "%-44s %9.1f\n", "all", sum / 1000 }' "$PAGODA_STAGES" >&2
}
