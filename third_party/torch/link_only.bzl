"""A library that takes part in links alone."""

def _impl(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]

link_only = rule(
    implementation = _impl,
    doc = """Hides a library from compiles.

A cc_library adds -iquote of its repository to every compile above it, so that
the objects of --config=cuda would not be those of the default build.""",
    attrs = {"library": attr.label(providers = [CcInfo], mandatory = True)},
    provides = [CcInfo],
)
