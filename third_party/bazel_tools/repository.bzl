"""What Debian's Bazel 4.2.3 would otherwise download."""

_RULES_CC_DEFS = """\
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
"""

_COVERAGE_TOOLS = """\
package(default_visibility = ["//visibility:public"])

sh_binary(name = "coverage_report_generator", srcs = ["unavailable.sh"])

sh_binary(name = "lcov_merger", srcs = ["unavailable.sh"])
"""

def _rules_cc_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = \"rules_cc\")\n")
    ctx.file("BUILD", "")
    ctx.file("cc/BUILD", "")
    ctx.file("cc/defs.bzl", _RULES_CC_DEFS)

_rules_cc = repository_rule(implementation = _rules_cc_impl)

def _coverage_tools_impl(ctx):
    ctx.file("BUILD", _COVERAGE_TOOLS)
    ctx.file(
        "unavailable.sh",
        "#!/bin/sh\necho 'error: this Bazel has no coverage tools' >&2\nexit 3\n",
        executable = True,
    )

_coverage_tools = repository_rule(implementation = _coverage_tools_impl)

def bazel_tools_repositories():
    """Overrides Bazel's implicit downloads with Debian's packages and shims."""
    _rules_cc(name = "rules_cc")
    _coverage_tools(name = "remote_coverage_tools")
    for rules in ["java", "proto"]:
        native.local_repository(
            name = "rules_" + rules,
            path = "/usr/share/bazel/rules/" + rules,
        )
