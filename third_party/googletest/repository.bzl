"""Debian's GoogleTest and GoogleMock."""

load("//third_party:system_library.bzl", "pkg_config", "system_cc_library")

def _impl(ctx):
    text = ""
    for target, module, package in [
        ("gtest", "gmock", "libgmock-dev"),
        ("gtest_main", "gmock_main", "libgmock-dev"),
    ]:
        flags = pkg_config(ctx, package, module)
        text += system_cc_library(target, linkopts = flags.linkopts)
    ctx.file("BUILD", text)

googletest_repository = repository_rule(implementation = _impl, local = True)
