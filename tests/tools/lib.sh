# shellcheck shell=bash
# Sourced by the scripts in tests/: paths and environment of this checkout.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# Two checkouts on one machine must not meet: this goes into every shared name.
checkout=$(printf %s "$root" | sha256sum | cut -c1-6)
cache=$root/.cache
collections=${XDG_CACHE_HOME:-$HOME/.cache}/inferops-sglang-pd/$checkout

oldest_ansible_core=$cache/ansible-core-oldest

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# The environment in which Ansible, Molecule and pytest see this checkout as an
# installed collection, and nothing of the user's own Ansible set-up.
# ANSIBLE_CORE=oldest: by the oldest version that is supported, in place of the newest.
use_environment() {
  [[ -x $root/.venv/bin/ansible && -x $oldest_ansible_core/bin/ansible ]] ||
    die "no virtual environments yet: run 'make setup'"
  local link=$collections/ansible_collections/inferops/sglang_pd
  if [[ $(readlink "$link" || true) != "$root" ]]; then
    mkdir -p "${link%/*}"
    ln -sfn "$root" "$link"
  fi
  unset PYTHONHOME VIRTUAL_ENV
  export PATH=$root/.venv/bin:$PATH
  case ${ANSIBLE_CORE:-newest} in
    newest) ;;
    oldest) PATH=$oldest_ansible_core/bin:$PATH ;;
    *) die "ANSIBLE_CORE=$ANSIBLE_CORE: newest or oldest" ;;
  esac
  export PYTHONPATH=$collections
  export ANSIBLE_COLLECTIONS_PATH=$collections
  export ANSIBLE_CONFIG=$root/tests/ansible.cfg
  export ANSIBLE_HOME=$cache/ansible
}
