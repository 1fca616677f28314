"""Debian's Google Benchmark."""

load("//third_party:system_library.bzl", "pkg_config", "system_cc_library")

def _impl(ctx):
    flags = pkg_config(ctx, "libbenchmark-dev", "benchmark")
    ctx.file(
        "BUILD",
        system_cc_library("benchmark", linkopts = flags.linkopts) +
        system_cc_library(
            "benchmark_main",
            linkopts = ["-lbenchmark_main"],
            deps = [":benchmark"],
        ),
    )

benchmark_repository = repository_rule(implementation = _impl, local = True)
