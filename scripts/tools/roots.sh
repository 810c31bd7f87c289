# Bare systems made with debootstrap, for what tries this checkout on them. To be sourced, after needs.sh.
# shellcheck shell=bash disable=SC2154,SC2034  # root, checkout, say: the caller's; systems: for the caller
#
# The functions work on $root, the folder of a system. DEBIAN_ARCHIVE and UBUNTU_ARCHIVE name the archives.

# This machine's own archives, unless the variables name others.
debian=${DEBIAN_ARCHIVE:-$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep '/debian/*$' | head -n 1 || true)}
ubuntu=${UBUNTU_ARCHIVE:-$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep '/ubuntu/*$' | head -n 1 || true)}
certificates=/etc/ssl/certs/ca-certificates.crt
# system | suite | archive | components | a script of debootstrap that suits
systems=(
  "debian-12|bookworm|$debian|main|sid"
  "debian-13|trixie|$debian|main|sid"
  "debian-testing|testing|$debian|main|sid"
  "ubuntu-22.04|jammy|$ubuntu|main,universe|gutsy"
  "ubuntu-24.04|noble|$ubuntu|main,universe|gutsy"
)

# make_root ROW: the bare system, in $root.
make_root() {
  local name suite archive components script keyring=()
  IFS='|' read -r name suite archive components script <<<"$1"
  [[ -n $archive ]] || { say "$name: no archive is known: set ${name%%-*}'s, DEBIAN_ARCHIVE or UBUNTU_ARCHIVE"; return 1; }
  # A system does not know the other's keys: then the archive's certificate speaks for it.
  if [[ $archive == "$ubuntu" && ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]]; then
    keyring=(--no-check-gpg)
  elif [[ $archive == "$debian" && ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
    say "$name needs /usr/share/keyrings/debian-archive-keyring.gpg (package debian-archive-keyring)"
    return 1
  fi
  # A killed debootstrap may have left mounts, which are not ours to empty.
  rm -rf --one-file-system "$root"
  debootstrap --variant=minbase "${keyring[@]}" "--components=$components" "$suite" "$root" "$archive" \
    "/usr/share/debootstrap/scripts/$script" || return
  # A bare system has no certificates; from here on its own keys are there. Users have its updates.
  echo "deb ${archive/https:/http:} $suite ${components//,/ }" >"$root/etc/apt/sources.list"
  [[ $suite == testing ]] ||
    echo "deb ${archive/https:/http:} $suite-updates ${components//,/ }" >>"$root/etc/apt/sources.list"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod +x "$root/usr/sbin/policy-rc.d"
  printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
  within "useradd --create-home tester && apt-get -q update" || return
  # This system's own CMake is too old.
  if [[ $name == ubuntu-22.04 ]]; then
    within "apt-get install -y -q --no-install-recommends python3-pip && pip3 install 'cmake>=3.25,<4'" || return
  fi
  touch "$root/made"
}

# within WORDS [--net]: a shell command in the root, in namespaces of its own; --net: with loopback only.
within() {
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  # Whom this machine trusts: a bare system knows no certificates, nor those of a site's own.
  [[ ! -e $certificates ]] || cp -L "$certificates" "$root/etc/certificates.crt"
  # shellcheck disable=SC2016  # for the shell inside
  unshare --mount --pid ${2:+"$2"} --fork --kill-child sh -c '
    [ -z "$2" ] || ip link set lo up || exit
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev" && mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"
    mount --rbind /sys "$0/sys" && mount --make-rslave "$0/sys"
    exec chroot "$0" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
      PIP_CERT=/etc/certificates.crt SSL_CERT_FILE=/etc/certificates.crt DEBIAN_FRONTEND=noninteractive sh -c "$1"' "$root" "$1" "${2:-}"
}

# copy_checkout FOLDER: what git would commit, and what it does not ignore, of this checkout.
copy_checkout() {
  rm -rf "$1"
  mkdir -p "$1"
  git -C "$checkout" ls-files -z --cached --others --exclude-standard |
    (cd "$checkout" && while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done) |
    tar -C "$checkout" --null --files-from=- -cf - | tar -C "$1" --no-same-owner -xf -
}
