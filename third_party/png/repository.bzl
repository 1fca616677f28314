"""Debian's libpng."""

load("//third_party:system_library.bzl", "pkg_config", "system_cc_library")

def _impl(ctx):
    flags = pkg_config(ctx, "libpng-dev", "libpng")
    ctx.file("BUILD", system_cc_library("png", linkopts = flags.linkopts))

png_repository = repository_rule(implementation = _impl, local = True)
