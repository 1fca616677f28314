"""Debian's Abseil, under the labels of the module registry."""

load("//third_party:system_library.bzl", "pkg_config", "system_cc_library")

# package -> {target: pkg-config module}
_TARGETS = {
    "algorithm": {"container": "absl_algorithm_container"},
    "base": {"core_headers": "absl_core_headers"},
    "cleanup": {"cleanup": "absl_cleanup"},
    "container": {
        "flat_hash_map": "absl_flat_hash_map",
        "flat_hash_set": "absl_flat_hash_set",
    },
    "flags": {
        "flag": "absl_flags",
        "marshalling": "absl_flags_marshalling",
        "parse": "absl_flags_parse",
        "reflection": "absl_flags_reflection",
        "usage": "absl_flags_usage",
    },
    "status": {"status": "absl_status", "statusor": "absl_statusor"},
    "strings": {"str_format": "absl_str_format", "strings": "absl_strings"},
    "synchronization": {"synchronization": "absl_synchronization"},
    "time": {"time": "absl_time"},
    "types": {"optional": "absl_optional", "span": "absl_span"},
}

def _impl(ctx):
    for package, targets in _TARGETS.items():
        text = ""
        for target, module in targets.items():
            flags = pkg_config(ctx, "libabsl-dev", module)
            text += system_cc_library(target, linkopts = flags.linkopts)
        ctx.file("absl/%s/BUILD" % package, text)
    ctx.file("BUILD", "")

abseil_repository = repository_rule(implementation = _impl, local = True)
