#!/bin/bash
# Packs in parts with a job array, and commits when all parts are there:
#
#   examples/slurm/pack.sh /data/photos /data/train [--images raw --resize 256 ...]
#
# PARTS=64 sets the number of parts, and SBATCH="--partition=cpu --mem=8G" adds options of sbatch. After a failure, or
# after scancel, run the same command again: finished parts are not packed again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
parts=${PARTS:-64}
# shellcheck disable=SC2086 # several options
job=$(sbatch --parsable ${SBATCH:-} --array="0-$((parts - 1))" "$here/part.sbatch" "$parts" "$@")
# shellcheck disable=SC2086
sbatch ${SBATCH:-} --dependency="afterok:${job%%;*}" --kill-on-invalid-dep=yes "$here/commit.sbatch" "$2"
