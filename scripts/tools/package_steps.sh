# The steps of package_systems.sh, each a function that runs commands in roots. To be sourced by it.
# shellcheck shell=bash disable=SC2154,SC2034  # name, row, root, folder, packages, checkout, jobs: the caller's
source_folder=/home/tester/dstune-mpi
examples=/usr/share/dstune/examples
install="apt-get install -y -q --no-install-recommends"
only_here=debian-13

# by_tester WORDS: by a user with a home.
by_tester() { printf "setpriv --reuid=tester --regid=tester --clear-groups env HOME=/home/tester bash -ec '%s'" "$1"; }

# by_nobody ENVIRONMENT WORDS: by a user that the system has no name for.
by_nobody() {
  printf "rm -rf /srv/try && install -d -o 4711 -g 4711 /srv/try && cd /srv/try &&
    setpriv --reuid=4711 --regid=4711 --clear-groups env -i PATH=/usr/local/bin:/usr/bin:/bin %s sh -ec '%s'" "$1" "$2"
}

# in_build: $root is the one that packages are built in.
in_build() { root=$folder/$name; }

# in_bare: $root is a bare system with the packages in /srv/packages, the Debian package as dstune-mpi.deb.
in_bare() {
  root=$folder/$name.installed
  bare && mkdir -p "$root/srv/packages" && cp "$packages"/dstune-mpi* "$root/srv/packages" &&
    cp "$packages"/dstune-mpi_*.deb "$root/srv/packages/dstune-mpi.deb"
}

# installed: $root is a system that has the package, and what was tried there before.
installed() {
  root=$folder/$name.installed
  [[ -e $root/usr/bin/dstune-mpi ]] || { in_bare && within "apt-get update && apt-get install -y /srv/packages/dstune-mpi.deb"; } \
    >"$folder/$name.again.log" 2>&1
}

try_build() {
  in_build
  copy_checkout "$root$source_folder"
  attempt build "Debian package and source archive" "cd $source_folder
    scripts/setup.sh
    $install dpkg-dev fakeroot file lintian ccache
    chown -R tester: .
    $(by_tester "export CCACHE_DIR=/home/tester/.ccache
      cmake --preset package -DDSTUNE_CUDA=OFF -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
      cmake --build --preset package --parallel $jobs
      cd build/package
      cpack -G DEB
      cpack --config CPackSourceConfig.cmake")"
  [[ $result == ok ]] || return 0
  rm -rf "$packages" && mkdir "$packages"
  cp "$root$source_folder"/build/package/dstune-mpi*.{deb,tar.gz} "$packages"
}

try_lintian() {
  in_build
  mkdir -p "$root/srv/packages" && cp "$packages"/dstune-mpi_*.deb "$root/srv/packages/dstune-mpi.deb"
  attempt lintian "lintian" "lintian --version
    dpkg-deb --info /srv/packages/dstune-mpi.deb
    $(by_tester "lintian --display-info --show-overrides --fail-on error,warning,info /srv/packages/dstune-mpi.deb")"
}

try_install() {
  in_bare
  attempt install "apt-get install on the bare system" "apt-get update
    apt-get install -y /srv/packages/dstune-mpi.deb
    dpkg -L dstune-mpi"
}

try_run() {
  installed
  local plan="dstune-mpi --version && dstune-mpi plan $examples/spaces/quickstart.json"
  local job="mpirun -np 2 dstune-mpi $examples/spaces/quickstart.json && cat autotuning_results/ds_config_optimal.json"
  # Containers may have fewer cores than ranks, and no core of their own.
  local few="OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
  attempt run "plan, no name, no HOME" "$(by_nobody "" "$plan")"
  attempt run "plan, no name, HOME=/nonexistent" "$(by_nobody HOME=/nonexistent "$plan")"
  attempt run "job of 2 ranks, no name, HOME=/nonexistent" "$(by_nobody "HOME=/nonexistent $few" "$job")"
  attempt run "job of 2 ranks, no name, no HOME" "$(by_nobody "$few" "$job")"
}

try_man() {
  installed
  attempt man "man finds and shows both pages" "$install man-db
    $(by_tester 'for page in dstune-mpi dstune-space
      do
        man "$page" >/tmp/page
        grep -q "^NAME" /tmp/page
        grep -c . /tmp/page
        man --where "$page"
        man --warnings -E UTF-8 -l "$(man --where "$page")" 2>&1 >/dev/null | tee /tmp/warnings
        [ ! -s /tmp/warnings ]
      done')"
}

try_plugin() {
  installed
  attempt plugin "the example against the package alone" "$install gcc libc6-dev cmake make
    rm -rf /home/tester/plugin && install -d -o tester /home/tester/plugin && cd /home/tester/plugin
    $(by_tester "cp -r $examples . && cd examples
      cmake -S plugin -B ../build/plugin
      cmake --build ../build/plugin
      cd ..
      OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
        mpirun -np 2 dstune-mpi examples/spaces/plugin.json
      cat autotuning_results/ds_config_optimal.json")"
}

try_slurm() {
  installed
  cp "$checkout"/mpi_tests/slurm/cluster.py "$checkout"/scripts/tools/package_slurm.py "$root/srv/packages"
  attempt slurm "a printed script, submitted by a user" "$install slurm-wlm munge python3
    rm -rf /home/tester/job && install -d -o tester /home/tester/job
    python3 -B /srv/packages/package_slurm.py tester /home/tester/job $examples/spaces/quickstart.json"
}

try_remove() {
  in_bare
  # Both lists are of the system with all that the package needs: the difference is the package's own.
  local files="find / -xdev \\( -path /proc -o -path /dev -o -path /sys -o -path /tmp -o -path /srv -o -path /home \\
    -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/log \\) -prune -o -print | sort"
  attempt remove "no file is left after apt-get purge" "apt-get update
    needs=\$(dpkg-deb -f /srv/packages/dstune-mpi.deb Depends Recommends | sed 's/^[^:]*: //' | paste -sd,)
    apt-get satisfy -y \"\$needs\"
    apt-get install -y man-db bash-completion
    $files >/tmp/before
    apt-get install -y /srv/packages/dstune-mpi.deb
    $(by_nobody HOME=/nonexistent "dstune-mpi plan $examples/spaces/quickstart.json")
    cd /
    $files >/tmp/between
    apt-get purge -y dstune-mpi
    $files >/tmp/after
    echo \"\$(comm -13 /tmp/before /tmp/between | wc -l) paths came with the package\"
    diff /tmp/before /tmp/after
    ! dpkg -s dstune-mpi"
}
