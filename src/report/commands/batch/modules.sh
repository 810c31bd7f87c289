# Batch systems may start a shell that does not know "module".
find_module() {
  local init
  for init in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" \
    "${MODULESHOME:-/usr/share/modules}/init/bash" \
    /etc/profile.d/lmod.sh /etc/profile.d/modules.sh; do
    # shellcheck disable=SC1090
    type module >/dev/null 2>&1 || [[ ! -r $init ]] || source "$init"
  done
}
find_module
