"""Repositories over libraries that the system has, found through pkg-config."""

_INSTALL_HINT = "run ./bazelw once, which installs it, or: apt-get install "

def pkg_config(ctx, debian_package, module):
    """Returns the compiler and linker flags of a pkg-config module.

    Args:
      ctx: the repository context.
      debian_package: named in the error where the module is missing.
      module: the pkg-config module.

    Returns:
      A struct of `copts` and `linkopts`.
    """
    flags = []
    for kind in ["--cflags", "--libs"]:
        result = ctx.execute(["pkg-config", kind, module])
        if result.return_code != 0:
            fail("%s not found (pkg-config %s): %s%s" % (
                debian_package,
                module,
                _INSTALL_HINT,
                debian_package,
            ))
        flags.append([flag for flag in result.stdout.strip().split(" ") if flag])

    # Debian's headers lie in /usr/include, which every compile sees.
    return struct(
        copts = [flag for flag in flags[0] if flag.startswith("-D")],
        linkopts = flags[1],
    )

def require_header(ctx, debian_package, path):
    """Fails, naming the Debian package, where a header is missing."""
    if not ctx.path(path).exists:
        fail("%s not found (%s): %s%s" % (
            debian_package,
            path,
            _INSTALL_HINT,
            debian_package,
        ))

def system_cc_library(name, linkopts = [], defines = [], deps = []):
    """Returns the text of a cc_library over a system library."""
    return """\
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
    deps = {deps},
)
""".format(name = name, linkopts = linkopts, defines = defines, deps = deps)
