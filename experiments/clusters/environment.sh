#!/usr/bin/env bash
# Set NAME=VALUE ... in the environment of every command that Ray runs on this machine (each reads ~/.bashrc), with the
# settings that every machine of a cluster needs. A later call replaces an earlier one's.
set -euo pipefail
{
    echo 'export PATH=$HOME/cse-venv/bin:$PATH RAY_AUTH_MODE=token CSE_RAY=auto'
    for setting in "$@"; do
        printf 'export %s=%q\n' "${setting%%=*}" "${setting#*=}"
    done
} > ~/.cse-environment
chmod 600 ~/.cse-environment
grep -qs cse-environment ~/.bashrc || echo '. ~/.cse-environment' >> ~/.bashrc
