"""Writes reference.pt: measures of real label maps by independent packages.

    pip install torch==2.11.0 monai==1.6.1 scipy nibabel SimpleITK
    python tests/measures/make_reference.py aal.nii.gz tests/measures/reference.pt

aal.nii.gz, the AAL atlas, comes with Debian's mricron-data. A part of it, with
voxels of 2 x 2 x 1 mm, is compared with itself warped by a random field that
folds in places. MONAI gives Dice, HD95 and average surface distances, which
SciPy's distance transforms confirm here; SimpleITK gives the Jacobian.

The file is a dict of tensors:

    a, b            uint8 [D, H, W]   the labels
    labels          int64 [K]         those compared; some are in one alone
    displacement    int8 [3, D, H, W] in sixteenths of a voxel
    spacing_mm      float64 [3]
    dice, hd95_mm, average_mm         float64 [K]; infinity in one alone
    jacobian        float64 [D-2, H-2, W-2], without the faces
    sd_log_jacobian, folded_inside    float64 scalars; by NumPy, of `jacobian`
"""

import sys

import monai.metrics
import nibabel
import numpy as np
import SimpleITK
import torch
from scipy import ndimage

SPACING = (2.0, 2.0, 1.0)


def smooth_noise(rng, shape):
    """Returns a field of standard deviation 1 that varies over 4 voxels."""
    noise = ndimage.gaussian_filter(rng.standard_normal(shape), 4, mode="wrap")
    return noise / noise.std()


def surface(mask):
    return mask & ~ndimage.binary_erosion(mask)


def distances(a, b):
    """Returns the distances from a's surface voxels to b's surface, and back."""
    a, b = surface(a), surface(b)
    to_a = ndimage.distance_transform_edt(~a, sampling=SPACING)
    to_b = ndimage.distance_transform_edt(~b, sampling=SPACING)
    return to_b[a], to_a[b]


def compare(a, b):
    """Returns Dice, HD95 and average surface distance of two masks."""
    if not (a.any() and b.any()):
        return 0, np.inf, np.inf
    one_hot = [torch.from_numpy(mask)[None, None].float() for mask in (a, b)]
    dice = monai.metrics.compute_dice(*one_hot).item()
    assert np.isclose(dice, 2 * (a & b).sum() / (a.sum() + b.sum()))
    hd95 = monai.metrics.compute_hausdorff_distance(
        *one_hot, include_background=True, percentile=95, spacing=SPACING
    ).item()
    average = monai.metrics.compute_average_surface_distance(
        *one_hot, include_background=True, symmetric=True, spacing=SPACING
    ).item()
    there, back = distances(a, b)
    exact_hd95 = max(np.percentile(there, 95), np.percentile(back, 95))
    exact_average = np.concatenate([there, back]).mean()
    # MONAI computes in float32.
    assert np.isclose(hd95, exact_hd95, rtol=1e-5)
    assert np.isclose(average, exact_average, rtol=1e-5)
    return dice, hd95, average


def jacobian(displacement):
    """Returns SimpleITK's determinants, without the faces, axes as the field's."""
    image = SimpleITK.GetImageFromArray(
        np.moveaxis(displacement[::-1], 0, -1), isVector=True
    )
    determinants = SimpleITK.DisplacementFieldJacobianDeterminant(image)
    return SimpleITK.GetArrayFromImage(determinants)[1:-1, 1:-1, 1:-1]


def main(atlas, path):
    a = np.asarray(nibabel.load(atlas).dataobj)[34:98:2, 90:162:2, 54:86]
    a = a.astype(np.uint8)
    rng = np.random.default_rng(1)
    field = np.stack([1.5 * smooth_noise(rng, a.shape) for _ in range(3)])
    steps = np.clip(np.rint(16 * field), -127, 127).astype(np.int8)
    field = steps / 16.0
    where = np.indices(a.shape) + field
    b = ndimage.map_coordinates(a, where, order=0, mode="nearest")
    # A label that only one has, each way.
    one, other = [label for label in np.unique(a) if np.sum(a == label) > 500][1:3]
    a = np.where(a == one, 0, a).astype(np.uint8)
    b = np.where(b == other, 0, b).astype(np.uint8)

    labels = [label for label in np.union1d(a, b) if label != 0]
    measures = np.array([compare(a == label, b == label) for label in labels])
    determinants = jacobian(field).astype(np.float64)
    inside = determinants[1:-1, 1:-1, 1:-1]
    result = {
        "a": a,
        "b": b,
        "labels": np.array(labels, np.int64),
        "displacement": steps,
        "spacing_mm": np.array(SPACING),
        "dice": measures[:, 0],
        "hd95_mm": measures[:, 1],
        "average_mm": measures[:, 2],
        "jacobian": determinants.astype(np.float32),
        # Learn2Reg's formula.
        "sd_log_jacobian": np.log(np.clip(inside + 3, 1e-9, 1e9)).std(),
        "folded_inside": (determinants <= 0).mean(),
    }
    torch.save({key: torch.tensor(value) for key, value in result.items()}, path)
    print(len(labels), "labels; folded", result["folded_inside"])
    print(measures)


if __name__ == "__main__":
    main(*sys.argv[1:])
