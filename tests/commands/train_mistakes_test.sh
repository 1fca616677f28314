#!/usr/bin/env bash
# A newcomer's mistakes with a training program: one clear line, the right exit
# code, before anything is trained.
set -euo pipefail
source tests/commands/expect.sh
readonly train=$1
nifti() { python3 tests/commands/nifti_file.py "$@"; }

mistake() {
  local code=$1 text=$2
  shift 2
  expect "$code" "$text" "$train" --check-args --device cpu "$@"
}

# Arguments.
mistake 2 'unknown option --stepz; did you mean --steps?' --stepz 5
mistake 2 '--steps=five is wrong' --steps five
mistake 2 'unknown precision "fp61"' --precision fp61
mistake 2 'did you mean ncc?' --similarity nccc
mistake 2 'did you mean tiny?' --config tinny
mistake 2 'give one' --steps 5 --epochs 2
mistake 2 '--atlas-labels' --atlas "$work/brain.nii.gz"
mistake 2 'wanted percentile:LO,HI' --intensity percentile:5 \
  --data "$work/list.json"
mistake 2 '--intensity is for --data and --atlas' --intensity none
mistake 2 '68719476736 voxels' --size 4096,4096,4096

# The machine.
expect 3 'cuda' "$train" --check-args --device cuda
touch "$work/a_file"
mistake 3 "$work/a_file/run" --out "$work/a_file/run"
RANK=0 expect 3 'WORLD_SIZE' "$train" --check-args

# Data.
nifti "$work/brain.nii.gz" 24x24x24
nifti "$work/labels.nii.gz" 24x24x24 --dtype uint8
nifti "$work/other_labels.nii.gz" 24x20x24 --dtype uint8
nifti "$work/series.nii" 8x8x8x5
nifti "$work/cut.nii.gz" 24x24x24 --cut 40
mistake 10 "$work/nowhere.nii.gz" \
  --atlas "$work/nowhere.nii.gz" --atlas-labels "$work/labels.nii.gz"
mistake 10 "$work/series.nii" \
  --atlas "$work/series.nii" --atlas-labels "$work/labels.nii.gz"
mistake 10 "$work/cut.nii.gz" \
  --atlas "$work/cut.nii.gz" --atlas-labels "$work/labels.nii.gz"
mistake 10 "$work/other_labels.nii.gz" \
  --atlas "$work/brain.nii.gz" --atlas-labels "$work/other_labels.nii.gz"
echo '{"training": [], "validation": []}' >"$work/empty.json"
mistake 10 'training' --data "$work/empty.json"
echo '{"training": [' >"$work/broken.json"
mistake 10 "$work/broken.json" --data "$work/broken.json"

# Checkpoints.
mistake 12 'nothing to resume' --resume --out "$work/never"
mkdir -p "$work/wreck/checkpoints"
echo '{"options": {}}' >"$work/wreck/config.json"
echo garbage >"$work/wreck/checkpoints/latest.pth"
mistake 12 "$work/wreck/checkpoints/latest.pth" --resume --out "$work/wreck"

# What is right is said to be right.
mistake 0 '' --steps 3 --out "$work/good" \
  --atlas "$work/brain.nii.gz" --atlas-labels "$work/labels.nii.gz"
expect 0 '--val-every' "$train" --help
finish
