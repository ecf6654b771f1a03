# What the other scripts share; sourced, never run. Sets `root`, the top of the tree; PAGODA_HOME,
# not exported, where that is unset; and `models`, the folder of downloaded models.
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# A service may run without HOME; a user that nobody knows keeps its files in the tree.
user_home=${HOME:-$(getent passwd "$(id -u)" | awk -F: '{ print $6 }' || true)}
PAGODA_HOME=${PAGODA_HOME:-${user_home:-$root}/.cache/pagoda}
models=$PAGODA_HOME/models
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

# Prints the folders that may limit this process: its control groups and those above them, as far
# as they are mounted. They are of version 2, or of version 1's cpu and memory.
# cgroup_folders MEMBERSHIP MOUNT, usually /proc/self/cgroup /sys/fs/cgroup
cgroup_folders() {
  local controller path folder
  [[ -r $1 ]] || return 0
  for controller in '' cpu memory; do
    path=$(awk -F: -v c=",$controller," 'index("," $2 ",", c) { print $3; exit }' "$1")
    [[ -n $path ]] || continue
    path=${path%/}
    while :; do
      folder=$2${controller:+/$controller}$path
      [[ ! -d $folder ]] || printf '%s\n' "$folder"
      [[ $path == */* ]] || break
      path=${path%/*}
    done
  done
}

# Prints the whole cores, rounded up, that the group of this folder may use; nothing: no limit.
cgroup_cores() {
  local quota='' period=''
  if [[ -r $1/cpu.max ]]; then
    read -r quota period <"$1/cpu.max" || true
  elif [[ -r $1/cpu.cfs_quota_us && -r $1/cpu.cfs_period_us ]]; then
    read -r quota <"$1/cpu.cfs_quota_us" || true
    read -r period <"$1/cpu.cfs_period_us" || true
  fi
  [[ $quota =~ ^[1-9][0-9]*$ && $period =~ ^[1-9][0-9]*$ ]] || return 0
  printf '%s' $(((quota + period - 1) / period))
}

# Prints the KiB that the group of this folder may still take; nothing: no limit. Files that it read
# long ago count as its memory but give way.
cgroup_free_kb() {
  local limit='' used='' idle=0 name value
  if [[ -r $1/memory.max && -r $1/memory.current ]]; then
    read -r limit <"$1/memory.max" || true
    read -r used <"$1/memory.current" || true
  elif [[ -r $1/memory.limit_in_bytes && -r $1/memory.usage_in_bytes ]]; then
    read -r limit <"$1/memory.limit_in_bytes" || true
    read -r used <"$1/memory.usage_in_bytes" || true
  fi
  [[ $limit =~ ^[0-9]+$ && $used =~ ^[0-9]+$ ]] || return 0
  if [[ -r $1/memory.stat ]]; then
    while read -r name value; do
      # In version 1 the total, with the groups below, comes later in the file.
      [[ $name != inactive_file && $name != total_inactive_file ]] || idle=$value
    done <"$1/memory.stat"
  fi
  printf '%s' $(((limit - used + idle) / 1024))
}

# Compilers to run at once: one a core, but no more than fit in memory (an optimised file of kernels
# or of HTTP templates takes up to 1.5 GiB); a container's limits count as the machine's.
# build_jobs [PROC] [CGROUP]
build_jobs() {
  local proc=${1:-/proc} cgroup=${2:-/sys/fs/cgroup} cores memory_kb jobs folder limit
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' "$proc/meminfo")
  while read -r folder; do
    limit=$(cgroup_cores "$folder")
    [[ -z $limit || $limit -ge $cores ]] || cores=$limit
    limit=$(cgroup_free_kb "$folder")
    [[ -z $limit || $limit -ge $memory_kb ]] || memory_kb=$limit
  done < <(cgroup_folders "$proc/self/cgroup" "$cgroup")
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
