#!/bin/bash
# What the original training Job runs in every pod. Arguments are those of `paddlejob start`.
set -eu
exec "$(dirname "$(readlink -f "$0")")/start_paddle.py" "$@"
