"""Writes small NIfTI-1 files for the command tests, good and broken ones.

Usage: nifti_file.py PATH SIZES [--dtype uint8|float32] [--empty] [--cut BYTES]
SIZES is XxYxZ or XxYxZxT. Voxels are a cube of value 1 in zeros, or all zeros.
"""

import argparse
import gzip
import struct

DTYPES = {"uint8": (2, 8, "B"), "float32": (16, 32, "f")}


def nifti(sizes, dtype, value=1):
    code, bits, kind = DTYPES[dtype]
    count = 1
    for size in sizes:
        count *= size
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    dims = [len(sizes)] + list(sizes) + [1] * (7 - len(sizes))
    struct.pack_into("<8h", header, 40, *dims)
    struct.pack_into("<2h", header, 70, code, bits)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 1, 1, 1)
    struct.pack_into("<f", header, 108, 352)
    struct.pack_into("<h", header, 254, 1)
    for row, offset in enumerate((280, 296, 312)):
        values = [0.0] * 4
        values[row] = 1.0
        struct.pack_into("<4f", header, offset, *values)
    header[344:348] = b"n+1\0"
    x, y, z = sizes[:3]
    voxels = []
    for index in range(count):
        i, j, k = index % x, index // x % y, index // (x * y) % z
        inside = all(size // 4 <= at < size - size // 4
                     for at, size in ((i, x), (j, y), (k, z)))
        voxels.append(value if inside else 0)
    return bytes(header) + struct.pack("<%d%s" % (count, kind), *voxels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("sizes")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--cut", type=int, default=0)
    arguments = parser.parse_args()
    data = nifti([int(size) for size in arguments.sizes.split("x")],
                 arguments.dtype, value=0 if arguments.empty else 1)
    if arguments.path.endswith(".gz"):
        data = gzip.compress(data)
    with open(arguments.path, "wb") as file:
        file.write(data[:len(data) - arguments.cut])


if __name__ == "__main__":
    main()
