#!/bin/bash
# What the image does without a command: splits the data of the example into OUT_DIR, one shard for each of
# SPLIT_COUNT trainers, and puts the training scripts beside them.
set -eu
: "${OUT_DIR:?is not set: name the directory of the job on the shared volume}"
: "${SPLIT_COUNT:?is not set: give the number of trainers}"
here=$(dirname "$(readlink -f "$0")")
raw=${RAW_DIR:-$here/raw}
volume=${VOLUME:-/mnt}

# The original data Job mounts its volume at /mnt, but its OUT_DIR is the path that the volume has on the nodes.
# Whatever is written outside of a volume is lost with the container.
mkdir -p "$OUT_DIR"
if [ "$(stat -c %m "$OUT_DIR")" = / ] && mountpoint -q "$volume"; then
  echo "OUT_DIR $OUT_DIR is not on a volume: writing to $volume/$(basename "$OUT_DIR")"
  OUT_DIR=$volume/$(basename "$OUT_DIR")
fi

python3 "$here/quick_start/prepare_data.py" --out "$raw"
exec paddlejob data split "$raw" --out-dir "$OUT_DIR" \
  --config-dir "$here/quick_start" --config-dir "$here/recommendation"
