"""Debian's zlib."""

load("//third_party:system_library.bzl", "pkg_config", "system_cc_library")

def _impl(ctx):
    flags = pkg_config(ctx, "zlib1g-dev", "zlib")
    ctx.file("BUILD", system_cc_library("zlib", linkopts = flags.linkopts))

zlib_repository = repository_rule(implementation = _impl, local = True)
