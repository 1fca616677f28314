"""Unpacking pinned PyPI wheels in a repository rule."""

# Python reads zip files faster than unpacking all and deleting; only the named
# prefixes are written, with the first folder of each wheel dropped.
_UNPACK = """\
import pathlib, sys, zipfile
for wheel in pathlib.Path("wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            for source, target in (rule.split("=") for rule in sys.argv[1:]):
                if info.filename.startswith(source) and not info.is_dir():
                    path = pathlib.Path(target) / info.filename[len(source):]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(info))
"""

def unpack_wheels(ctx, requirements, rules):
    """Downloads wheels with pip and unpacks parts of them.

    Args:
      ctx: the repository context.
      requirements: lines of a pip requirements file, with their hashes.
      rules: {prefix in the wheel: folder in the repository}.
    """
    ctx.file("requirements.txt", "\n".join(requirements) + "\n")
    ctx.file("unpack.py", _UNPACK)
    ctx.report_progress("downloading %d wheels with pip" % len(requirements))
    result = ctx.execute(
        [
            "python3",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--python-version=311",
            "--implementation=cp",
            "--abi=cp311",
            "--abi=none",
            "--platform=manylinux_2_28_x86_64",
            "--platform=manylinux_2_27_x86_64",
            "--platform=manylinux_2_25_x86_64",
            "--platform=manylinux_2_18_x86_64",
            "--platform=manylinux2014_x86_64",
            "--platform=manylinux1_x86_64",
            "--dest=wheels",
            "--requirement=requirements.txt",
        ],
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("pip could not download LibTorch's wheels:\n%s\n" % result.stderr +
             "help: install python3-pip, or set MIR_TORCH_ROOT to an unpacked " +
             "libtorch or to the folder torch of a Python installation")
    result = ctx.execute(
        ["python3", "unpack.py"] +
        ["%s=%s" % (source, target) for source, target in rules.items()],
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("could not unpack LibTorch's wheels: " + result.stderr)
    ctx.delete("wheels")
