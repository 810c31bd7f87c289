#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # checkout: of needs.sh; missing_packages: for install_missing
# The browser that tests of report.html look at it with, and the Python environment that drives it. setup.sh
# sources it.
#   DSTUNE_PAGE_ENVIRONMENT   the environment's folder; without it build/page of the checkout
page_environment=${DSTUNE_PAGE_ENVIRONMENT:-$checkout/build/page}
page_constraints=$checkout/scripts/page/constraints.txt

ensure_browser() {
  if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then return; fi
  if command -v apt-get >/dev/null && can_become_root; then
    # Text needs some font.
    missing_packages=(chromium chromium-driver fonts-dejavu-core)
    install_missing || say "apt-get did not succeed"
    hash -r
  fi
  if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    say "The page's tests need the commands chromium and chromedriver (Debian: chromium, chromium-driver)"
    return 1
  fi
}

make_page_environment() {
  local python=$page_environment/bin/python
  ensure_browser || return
  if [[ -e $page_environment/complete ]]; then
    say "The environment of the page's tests is there: $page_environment"
    return
  fi
  ensure_python_parts
  say "Making the environment of the page's tests in $page_environment"
  # The package with axe-core wraps it for another driver, which is not needed: it comes without.
  python3 -m venv "$page_environment" &&
    "$python" -m pip install -q -c "$page_constraints" selenium html5lib &&
    "$python" -m pip install -q --no-deps -c "$page_constraints" axe-playwright-python &&
    touch "$page_environment/complete"
}
