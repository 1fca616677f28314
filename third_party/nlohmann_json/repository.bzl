"""Debian's nlohmann-json (header only)."""

load("//third_party:system_library.bzl", "require_header", "system_cc_library")

def _impl(ctx):
    require_header(ctx, "nlohmann-json3-dev", "/usr/include/nlohmann/json.hpp")
    ctx.file("BUILD", system_cc_library("json"))

nlohmann_json_repository = repository_rule(implementation = _impl, local = True)
