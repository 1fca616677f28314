"""What --config=cuda adds to LibTorch: link inputs, and headers for NCCL.

Fetched when first used. The files of @torch are those of the same wheel, so
objects compiled against it link here unchanged.
"""

load("//third_party/torch:wheels.bzl", "unpack_wheels")

_TODO = None
