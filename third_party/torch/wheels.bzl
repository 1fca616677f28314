"""Unpacking pinned PyPI wheels in a repository rule."""

# Only the files under the named prefixes are written: the wheels hold much more.
_UNPACK = """\
import pathlib
import shutil
import sys
import zipfile

rules = [rule.split("=") for rule in sys.argv[1:]]
unused = {source for source, _ in rules}
for wheel in pathlib.Path("wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            for source, target in rules:
                if info.is_dir() or not info.filename.startswith(source):
                    continue
                path = pathlib.Path(target + info.filename[len(source):])
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as packed, path.open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
                unused.discard(source)
if unused:
    sys.exit("not in the wheels: " + ", ".join(sorted(unused)))
"""

# pip's own variables (PIP_INDEX_URL, PIP_CERT, ...) pass through; these hold
# where the user has not set them.
_PIP_DEFAULTS = {
    "PIP_DEFAULT_TIMEOUT": "60",
    "PIP_RETRIES": "10",
}

def unpack_wheels(ctx, what, requirements, rules):
    """Downloads wheels with pip and unpacks parts of them.

    Args:
      ctx: the repository context.
      what: named in messages.
      requirements: lines of a pip requirements file, with their hashes.
      rules: {prefix in the wheel: what to put in its place}; a prefix that no
        wheel has is an error.
    """
    ctx.file("requirements.txt", "\n".join(requirements) + "\n")
    ctx.file("unpack.py", _UNPACK)

    # It takes minutes, so say so; print() would say it again in later builds.
    ctx.execute(
        ["printf", "%12s %s with pip\\n", "Downloading", what],
        quiet = False,
    )
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
            "--platform=manylinux2010_x86_64",
            "--platform=manylinux1_x86_64",
            "--dest=wheels",
            "--requirement=requirements.txt",
        ],
        environment = {
            name: value
            for name, value in _PIP_DEFAULTS.items()
            if name not in ctx.os.environ
        },
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("pip could not download %s:\n%s\n" % (what, result.stderr) +
             "help: run ./bazelw once, which installs python3-pip, and try " +
             "again; or set MIR_TORCH_ROOT to an unpacked libtorch or to the " +
             "folder torch of a Python installation")
    result = ctx.execute(
        ["python3", "unpack.py"] +
        ["%s=%s" % (source, target) for source, target in rules.items()],
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("could not unpack %s: %s" % (what, result.stderr))
    ctx.delete("wheels")
