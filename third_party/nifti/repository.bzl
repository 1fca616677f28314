"""Debian's libnifti2 (NIfTI-1 and NIfTI-2 reading and writing)."""

load("//third_party:system_library.bzl", "require_header", "system_cc_library")

def _impl(ctx):
    require_header(ctx, "libnifti2-dev", "/usr/include/nifti/nifti2.h")
    ctx.file("BUILD", system_cc_library(
        "nifti2",
        linkopts = ["-lnifti2", "-lznz", "-lz", "-lm"],
    ))

nifti_repository = repository_rule(implementation = _impl, local = True)
