#!/usr/bin/env bash
# //tools:register and //tools:deform: a newcomer's mistakes (one clear line, the
# right exit code), and what they write.
set -euo pipefail
source tests/commands/expect.sh
readonly register=$1 train=$2 deform=$3
nifti() { python3 tests/commands/nifti_file.py "$@"; }

nifti "$work/fixed.nii.gz" 20x24x20
nifti "$work/moving.nii.gz" 20x24x20
nifti "$work/labels.nii.gz" 20x24x20 --dtype uint8
nifti "$work/small.nii.gz" 16x16x16
nifti "$work/small_labels.nii.gz" 16x16x16 --dtype uint8
check 'a training of one step' "$train" --device cpu --config tiny \
  --size 16,16,16 --steps 1 --val-pairs 0 --out "$work/run"
readonly weights=$work/run/checkpoints/latest.pth

mistake() {
  local code=$1 text=$2
  shift 2
  expect "$code" "$text" "$register" --device cpu --out "$work/out" "$@"
}
pair=(--fixed "$work/fixed.nii.gz" --moving "$work/moving.nii.gz")

mistake 2 'wanted --weights' "${pair[@]}"
mistake 2 'wanted --fixed' --weights "$weights"
mistake 2 'did you mean --weights?' --wieghts "$weights" "${pair[@]}"
mistake 2 'did you mean voxelmorph?' --weights "$weights" "${pair[@]}" \
  --model voxelmorf
mistake 2 'fp8' --weights "$weights" "${pair[@]}" --precision fp8
expect 3 'cannot write to' "$register" --weights "$weights" "${pair[@]}" \
  --out "$work/fixed.nii.gz/out"
mistake 10 "$work/nowhere.nii" --weights "$weights" \
  --fixed "$work/nowhere.nii" --moving "$work/moving.nii.gz"
mistake 10 'different grids' --weights "$weights" \
  --fixed "$work/fixed.nii.gz" --moving "$work/small.nii.gz"
mistake 10 "$work/small_labels.nii.gz" --weights "$weights" "${pair[@]}" \
  --moving-labels "$work/small_labels.nii.gz"
mistake 12 "$work/nowhere.pth" --weights "$work/nowhere.pth" "${pair[@]}"
mistake 12 "$work/fixed.nii.gz" --weights "$work/fixed.nii.gz" "${pair[@]}"
mistake 12 'unet_model' --weights "$weights" "${pair[@]}" --config bj

mistake 0 'Dice' --weights "$weights" "${pair[@]}" \
  --fixed-labels "$work/labels.nii.gz" --moving-labels "$work/labels.nii.gz"
for file in warped.nii.gz warped_labels.nii.gz displacement_itk.nii.gz \
  displacement_voxels.nii.gz picture.png metrics.json; do
  check "$file is there" test -s "$work/out/$file"
done
for measure in sd_log_jacobian hd95_mm hd95_mm_before_by_label missing_labels; do
  check "$measure is there" grep -q "\"$measure\":" "$work/out/metrics.json"
done
mistake 0 'Registered' --weights "$weights" --spacing 1.5 \
  --fixed "$work/fixed.nii.gz" --moving "$work/small.nii.gz"

# Relative paths are those of the folder that `bazel run` was called from.
readonly here=$PWD
expect 0 Registered env -C / BUILD_WORKING_DIRECTORY="$work" \
  "$here/$register" --device cpu --weights run/checkpoints/latest.pth \
  --fixed fixed.nii.gz --moving moving.nii.gz --out relative
check 'a relative --out is there' test -s "$work/relative/warped.nii.gz"

# Pairs made from one volume, and the list of them.
expect 2 'wanted --image' "$deform"
expect 10 "$work/nowhere.nii" "$deform" --image "$work/nowhere.nii"
check 'two pairs are made' "$deform" --image "$work/fixed.nii.gz" \
  --labels "$work/labels.nii.gz" --pairs 2 --out "$work/deformed"
mistake 0 'pair-0001' --weights "$weights" --data "$work/deformed/dataset.json"
for name in pair-0000 pair-0001; do
  check "$name is measured" grep -q dice_by_label "$work/out/$name/metrics.json"
done
check 'the mean is there' grep -q '"dice":' "$work/out/metrics.json"

# Labels that are all background have no Dice, which is no error.
nifti "$work/empty.nii.gz" 20x24x20 --dtype uint8 --empty
check 'a pair without labels is made' "$deform" --image "$work/fixed.nii.gz" \
  --labels "$work/empty.nii.gz" --pairs 1 --out "$work/unlabelled"
mistake 0 'Dice nan' --weights "$weights" --data "$work/unlabelled/dataset.json"
check 'no mean is made up' grep -q '^  "dice": null' "$work/out/metrics.json"

# The same list shared by two ranks, and by two replicas in one process: each
# case once, in its order, and the same voxels.
check 'three pairs are made' "$deform" --image "$work/fixed.nii.gz" \
  --labels "$work/labels.nii.gz" --pairs 3 --out "$work/three"
list=(--weights "$weights" --data "$work/three/dataset.json" --threads 1)
expect 0 pair-0002 "$register" --device cpu "${list[@]}" --out "$work/alone"
expect 0 pair-0002 "$register" "${list[@]}" --cpu-procs 2 --out "$work/ranks"
expect 0 pair-0002 "$register" --device cpu "${list[@]}" --mode dp \
  --replicas 2 --out "$work/replicas"
measures() { python3 tests/commands/measures_of_list.py "$1/metrics.json"; }
for shared in ranks replicas; do
  check "$shared measure what one process does" \
    test "$(measures "$work/$shared")" = "$(measures "$work/alone")"
  check "$shared find what one process does" cmp \
    "$work/$shared/pair-0002/warped.nii.gz" "$work/alone/pair-0002/warped.nii.gz"
done
mistake 2 'wanted --data too' --weights "$weights" "${pair[@]}" --cpu-procs 2
mistake 2 "got 'all'" --weights "$weights" "${pair[@]}" --mode all
mistake 2 'goes with --mode dp' "${list[@]}" --replicas 2
expect 2 'wants one process' "$register" "${list[@]}" --cpu-procs 2 --mode dp \
  --out "$work/neither"
rm "$work/three/pair-0001_fixed.nii.gz"
expect 10 'fixed.nii.gz' "$register" "${list[@]}" --cpu-procs 2 \
  --out "$work/missing"
finish
