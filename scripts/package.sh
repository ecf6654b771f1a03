#!/usr/bin/env bash
# Packs the server for people without a compiler: scripts/package.sh [--fresh] [deb] [tar]
#   deb       build/packages/pagoda_VERSION_amd64.deb, for Debian 12
#   tar       build/packages/pagoda-VERSION-linux-x86_64.tar.gz, for any Linux with glibc 2.36
#   (none)    both
#   --fresh   also installs and runs them in a bare Debian 12, which takes root and a minute
# Builds the release first, as far as that is left to do, and then looks into what was packed: it
# must run, carry no debug symbols and no path of this machine, and find all of its libraries.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/debian_root.sh"

kinds=()
fresh=false
for argument in "$@"; do
  case $argument in
    deb | tar) kinds+=("$argument") ;;
    --fresh) fresh=true ;;
    -h | --help) usage ;;
    *) die "unknown argument '$argument'; scripts/package.sh --help lists them." ;;
  esac
done
[[ ${#kinds[@]} -gt 0 ]] || kinds=(deb tar)
if $fresh && [[ $(id -u) -ne 0 ]]; then
  die "--fresh makes a bare Debian and needs root."
fi

out=$root/build/packages
work=$(mktemp -d "${TMPDIR:-/var/tmp}/pagoda-package-XXXXXX")
wants() { [[ " ${kinds[*]} " == *" $1 "* ]]; }

# only_file PATTERN: the one file of that name in the folder of packages.
only_file() {
  local found=("$out"/$1)
  [[ ${#found[@]} -eq 1 && -f ${found[0]} ]] || die "$out must hold one file $1 after packing."
  printf '%s' "${found[0]}"
}

pack() {
  local generators=()
  ! wants deb || generators+=(DEB)
  ! wants tar || generators+=(TGZ)
  rm -rf -- "$out" || die "$out cannot be removed."
  (cd "$root/build/release" && IFS=';' && cpack -G "${generators[*]}" -B "$out") \
    >"$work/cpack.log" 2>&1 || {
    tail -n 20 "$work/cpack.log" >&2
    die "cpack failed; its last lines are above. If it misses a program: scripts/setup.sh --package"
  }
  rm -rf -- "$out/_CPack_Packages"
}

# The stages below run where the shell goes on after a failure, so each failure is said by die.

# check_tree FOLDER PROGRAM: what holds for every package, unpacked into the folder.
check_tree() {
  local folder=$1 program=$1/$2 found place version
  [[ -x $program ]] || die "$2 is not in the package."
  for place in "$root/" "${HOME:-/nowhere}/" "$work"; do
    [[ $place != / && $place != // ]] || continue
    found=$(grep -rlaF -- "$place" "$folder" || true)
    [[ -z $found ]] || die "these files carry '$place', a path of this machine: $found"
  done
  ! readelf -SW "$program" | grep -qE ' \.(symtab|debug_info) ' || die "$2 is not stripped."
  found=$(find "$folder" -mindepth 1 ! -type l -perm /022)
  [[ -z $found ]] || die "these can be written by others than their owner: $found"
  version=$(env -i "$program" version) || die "$2 version ended with status $?."
  [[ ${version%%$'\n'*} == "pagoda $expected_version" ]] ||
    die "$2 says '$version' where 'pagoda $expected_version' is built."
}

check_deb() {
  local deb folder=$work/deb depends name files
  deb=$(only_file "pagoda_${expected_version}_*.deb") || exit 1
  dpkg-deb -x "$deb" "$folder" || die "$deb cannot be unpacked."
  check_tree "$folder" usr/bin/pagoda
  [[ $(dpkg-deb -f "$deb" Package Version) == *"pagoda"*"$expected_version"* ]] ||
    die "$(basename "$deb") is not named pagoda, or not of version $expected_version."
  depends=$(dpkg-deb -f "$deb" Depends)
  for name in libc6 libstdc++6 libssl3; do
    [[ ", $depends" == *", $name ("* ]] || die "Depends of the package lacks $name: '$depends'."
  done
  files=$(dpkg-deb -c "$deb")
  ! grep -qvE '^[^ ]+ root/root ' <<<"$files" || die "files of the package are not root's: $files"
  for name in usr/lib/systemd/system/pagoda.service etc/default/pagoda; do
    grep -qF " ./$name" <<<"$files" || die "the package lacks $name."
  done
  [[ $(dpkg-deb --ctrl-tarfile "$deb" | tar -xO ./conffiles) == /etc/default/pagoda ]] ||
    die "/etc/default/pagoda must be a conffile, or an upgrade writes over what was set there."
  say "$(basename "$deb"): $(stat -c %s "$deb") bytes, depends on $depends"
}

# Its one folder becomes the given one.
unpack_tar() {
  mkdir -p "$2" && tar -xzf "$1" -C "$2" --strip-components=1 || die "$1 cannot be unpacked."
}

check_tar() {
  local tar folder=$work/tar program libraries missing
  tar=$(only_file "pagoda-$expected_version-*.tar.gz") || exit 1
  unpack_tar "$tar" "$folder"
  check_tree "$folder" bin/pagoda
  program=$folder/bin/pagoda
  libraries=$(env -i "$(command -v ldd)" "$program") || die "ldd cannot read bin/pagoda."
  missing=$(awk -v own="$folder/" '
    / => / && $1 !~ /^lib(c|m|dl|rt|pthread|resolv)\.so/ && index($3, own) != 1' <<<"$libraries")
  [[ -z $missing ]] || die "the archive does not bring these libraries along: $missing"
  say "$(basename "$tar"): $(stat -c %s "$tar") bytes, with" \
    "$(find "$folder/lib/pagoda" -type f | wc -l) libraries"
}

# in_root FOLDER COMMAND...: with /proc, which the loader reads to find a program's own folder.
in_root() {
  unshare --mount bash -c 'mount --bind /proc "$1/proc" && exec chroot "$@"' bash "$@"
}

# Runs in a root of its own: neither this machine's libraries nor its loader's cache are seen.
check_fresh() {
  local bare=$work/debian version deb tar
  debian_root "$bare"
  if wants tar; then
    tar=$(only_file "pagoda-$expected_version-*.tar.gz") || exit 1
    unpack_tar "$tar" "$bare/opt/pagoda"
    version=$(in_root "$bare" /opt/pagoda/bin/pagoda version) ||
      die "the archive's program does not run in a bare Debian 12."
    say "bare Debian 12, archive: $version"
  fi
  if wants deb; then
    deb=$(only_file "pagoda_${expected_version}_*.deb") || exit 1
    cp "$deb" "$bare/tmp/pagoda.deb" &&
      cp /etc/resolv.conf "$bare/etc/resolv.conf" || die "nothing can be copied to $bare."
    in_root "$bare" env DEBIAN_FRONTEND=noninteractive bash -c 'apt-get -qq update &&
      apt-get -qq install -y --no-install-recommends /tmp/pagoda.deb' >"$work/apt.log" 2>&1 || {
      tail -n 20 "$work/apt.log" >&2
      die "the package cannot be installed in a bare Debian 12; apt's last lines are above."
    }
    version=$(in_root "$bare" pagoda version) || die "the installed program does not run."
    [[ ! -e $bare/etc/systemd/system/multi-user.target.wants/pagoda.service ]] ||
      die "the package enables its service; that is for the administrator to do."
    in_root "$bare" apt-get -qq purge -y pagoda >>"$work/apt.log" 2>&1 &&
      [[ ! -e $bare/usr/bin/pagoda && ! -e $bare/etc/default/pagoda ]] ||
      die "the package leaves files behind when it is purged."
    say "bare Debian 12, package: $version; installed and purged"
  fi
}

outer_stages=${PAGODA_STAGES:-}
clean_up() {
  rm -rf -- "$work"
  [[ -n $outer_stages ]] || { print_stages && rm -f "$PAGODA_STAGES"; }
}

begin_stages
trap clean_up EXIT
stage "build" env PAGODA_TESTS=OFF "$root/scripts/build.sh" release
expected_version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' \
  "$root/build/release/CMakeCache.txt")
stage "pack" pack
! wants deb || stage "look into the deb" check_deb
! wants tar || stage "look into the tar" check_tar
! $fresh || stage "bare Debian 12" check_fresh
