# The steps of package_systems.sh, each a function that runs commands in roots. To be sourced by it.
# shellcheck shell=bash disable=SC2154,SC2034  # name, row, root, folder, packages, checkout, jobs: the caller's
version=$(sed -n 's/^project(dstune-mpi VERSION \([0-9.]*\).*/\1/p' "$checkout/CMakeLists.txt")
source_folder=/home/tester/dstune-mpi
examples=/usr/share/dstune/examples
install="apt-get install -y -q --no-install-recommends"
# Compilations of the same sources in other folders, and in other roots of a system, are remembered.
cache="export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1
      export CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DIR=/home/tester/.ccache
      export CCACHE_IGNOREOPTIONS=-fmacro-prefix-map=*"
few_cores="OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"

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
    $(by_tester "$cache CCACHE_BASEDIR=$source_folder
      cmake --preset package -DDSTUNE_CUDA=OFF
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
    $(by_tester "lintian --display-info --show-overrides --fail-on none /srv/packages/dstune-mpi.deb")
    # With --show-overrides lintian 2.116 fails of what is overridden, too.
    $(by_tester "lintian --fail-on error,warning /srv/packages/dstune-mpi.deb")"
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
  # Open MPI's own launcher ends where there is no HOME at all.
  attempt run "plan, no name, no HOME" "$(by_nobody "" "$plan")"
  attempt run "plan, no name, HOME=/nonexistent" "$(by_nobody HOME=/nonexistent "$plan")"
  attempt run "job of 2 ranks, no name, HOME=/nonexistent" "$(by_nobody "HOME=/nonexistent $few_cores" "$job")"
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
        MANWIDTH=120 man --warnings -E UTF-8 -l "$(man --where "$page")" 2>&1 >/dev/null | tee /tmp/warnings
        [ ! -s /tmp/warnings ]
      done')"
}

try_plugin() {
  installed
  attempt plugin "the example against the package alone" "$install gcc libc6-dev cmake make
    rm -rf /home/tester/plugin && install -d -o tester /home/tester/plugin && cd /home/tester/plugin
    $(by_tester "cp -r $examples .
      cmake -S examples/plugin -B build/plugin
      cmake --build build/plugin
      $few_cores mpirun -np 4 dstune-mpi examples/spaces/plugin.json
      cat autotuning_results/ds_config_optimal.json")"
}

try_slurm() {
  installed
  cp "$checkout"/mpi_tests/slurm/*.py "$checkout"/scripts/tools/package_slurm.py "$root/srv/packages"
  attempt slurm "a printed script, submitted by a user" "$install slurm-wlm munge python3
    rm -rf /home/tester/job && install -d -o tester /home/tester/job
    python3 -B /srv/packages/package_slurm.py tester /home/tester/job $examples/spaces/quickstart.json"
}

try_remove() {
  in_bare
  # Both lists are of the system with all that the package needs: the difference is the package's own.
  local files="find / -xdev \\( -path /proc -o -path /dev -o -path /sys -o -path /tmp -o -path /srv -o -path /home \\
    -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/cache/man -o -path /var/log \\) -prune -o -print | sort"
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

try_completion() {
  installed
  cp "$checkout/scripts/tools/package_completion.sh" "$root/srv/packages"
  attempt completion "bash, zsh and fish answer" "$install bash-completion zsh fish
    $(by_tester "bash /srv/packages/package_completion.sh")"
}

# for_sites: recipes are tried on one system, in the root where a package was built.
for_sites() {
  [[ $name == debian-13 ]] || return 1
  in_build
  rm -rf "$root/home/tester/site" && mkdir "$root/home/tester/site"
  cp "$packages"/dstune-mpi-*.tar.gz "$checkout"/scripts/packaging/easybuild/*.eb "$root/home/tester/site"
  within "chown -R tester: /home/tester/site"
}

try_lmod() {
  for_sites || return 0
  local prefix=/opt/dstune-mpi/$version
  cp -r "$checkout/scripts/packaging/lmod" "$root/home/tester/site/lmod"
  attempt lmod "module load and unload" "$install lmod man-db
    rm -rf $prefix && cmake --install $source_folder/build/package --prefix $prefix
    mkdir -p $prefix/share/modulefiles /srv/modules && cp -r /home/tester/site/lmod/* $prefix/share/modulefiles
    # The MPI is the system's, so that its module has nothing to set.
    install -D /dev/null /srv/modules/openmpi/system.lua
    $(by_tester "kept() { env | grep -Ev \"^(_|PWD|OLDPWD|SHLVL|[A-Za-z_]*LMOD|_ModuleTable|BASH_FUNC|MODULEPATH|}| )\" | sort; }
      . /usr/share/lmod/lmod/init/bash
      module --version
      module use $prefix/share/modulefiles /srv/modules
      for manuals in \"\" /usr/share/man
      do
        [ -z \"\$manuals\" ] || export MANPATH=\$manuals XDG_DATA_DIRS=/usr/share FPATH=/usr/share/zsh/functions
        kept >/tmp/before
        module load dstune-mpi
        module list
        module whatis dstune-mpi
        [ \"\$(command -v dstune-mpi)\" = $prefix/bin/dstune-mpi ]
        dstune-mpi --version
        for page in dstune-mpi dstune-space ls
        do
          man --where \$page
        done
        cd && rm -rf job && mkdir job && cd job
        $few_cores mpirun -np 2 dstune-mpi $prefix/share/dstune/examples/spaces/quickstart.json
        module unload dstune-mpi
        kept | diff /tmp/before -
      done")"
}

try_spack() {
  for_sites || return 0
  attempt spack "the steps of its recipe, without Spack" "rm -rf /opt/spack && install -d -o tester /opt/spack
    $(by_tester "cd /home/tester/site
      tar -xzf dstune-mpi-*.tar.gz
      cd dstune-mpi-$version
      $cache CCACHE_BASEDIR=\$PWD
      cmake -G Ninja -B build -DCMAKE_INSTALL_PREFIX=/opt/spack -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON $("$checkout/scripts/tools/check_packaging.py" --spack-arguments)
      ninja -C build -j $jobs
      ninja -C build install
      /opt/spack/bin/dstune-mpi --version
      /opt/spack/bin/dstune-mpi plan /opt/spack/share/dstune/examples/spaces/quickstart.json")"
}

try_easybuild() {
  for_sites || return 0
  attempt easybuild "finds all needs; builds with the system's" "$install python3-venv lmod
    [ -x /opt/easybuild/bin/eb ] || python3 -m venv /opt/easybuild
    /opt/easybuild/bin/pip -q install easybuild
    $(by_tester "cd /home/tester/site
      . /usr/share/lmod/lmod/init/bash
      export PATH=/opt/easybuild/bin:\$PATH LANG=C.UTF-8 EASYBUILD_MODULES_TOOL=Lmod EASYBUILD_PREFIX=/home/tester/site/eb
      eb --version
      for recipe in dstune-mpi-*.eb
      do
        eb --robot=\$PWD: --dry-run \$recipe
        eb --robot=\$PWD: --check-conflicts \$recipe
      done
      $cache CCACHE_BASEDIR=/home/tester/site/eb/build/dstunempi/$version/system-system
      eb --disable-map-toolchains --try-toolchain=system,system --parallel=$jobs \
        --filter-deps=Boost,Eigen,fmt,nlohmann_json,oneDNN,spdlog,yaml-cpp,CMake,Ninja dstune-mpi-$version-foss-2025a.eb
      module use eb/modules/all
      module load dstune-mpi
      dstune-mpi --version
      mkdir job && cd job
      $few_cores mpirun -np 2 dstune-mpi \$EBROOTDSTUNEMINMPI/share/dstune/examples/spaces/quickstart.json")"
}

try_apptainer() {
  for_sites || return 0
  local recipe="$checkout/scripts/tools/check_packaging.py --apptainer" cached=$root/home/tester/.ccache
  in_bare
  cp "$packages"/dstune-mpi-*.tar.gz "$root/opt"
  [[ ! -e $cached ]] || cp -a "$cached" "$root/home/tester/.ccache"
  within "apt-get update && $install ccache" >"$folder/$name.ccache.log" 2>&1
  attempt apptainer "commands of the stage build, without Apptainer" "$cache CCACHE_BASEDIR=/opt/dstune-mpi-$version
    $($recipe build post)"
  [[ $result == ok ]] || return 0
  cp "$root/opt/package/dstune-mpi.deb" "$folder/$name.apptainer.deb"
  in_bare
  mv "$folder/$name.apptainer.deb" "$root/opt/dstune-mpi.deb"
  attempt apptainer "commands of the stage final, and its test" "$($recipe final post)
    $($recipe final test)"
}
