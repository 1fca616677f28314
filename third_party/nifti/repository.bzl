"""Debian's libnifti2 (NIfTI-1 and NIfTI-2 headers)."""

load("//third_party:system_library.bzl", "require_header")

_FOLDER = "/usr/include/nifti"

# nifti2_io.h includes <znzlib.h> from its own folder.
_BUILD = """\
cc_library(
    name = "nifti2",
    hdrs = glob(["include/nifti/*.h"]),
    includes = [
        "include",
        "include/nifti",
    ],
    linkopts = ["-lnifti2", "-lznz", "-lz", "-lm"],
    visibility = ["//visibility:public"],
)
"""

def _impl(ctx):
    # The package depends on those that hold the other two headers.
    for header in ["nifti1.h", "nifti2.h", "nifti2_io.h", "znzlib.h"]:
        path = _FOLDER + "/" + header
        require_header(ctx, "libnifti2-dev", path)
        ctx.symlink(path, "include/nifti/" + header)
    ctx.file("BUILD", _BUILD)

nifti_repository = repository_rule(implementation = _impl, local = True)
