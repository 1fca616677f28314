"""LibTorch, from the pinned PyPI wheel or from MIR_TORCH_ROOT."""

load("//third_party/torch:wheels.bzl", "unpack_wheels")

_REQUIREMENTS = [
    "torch==2.11.0 --hash=sha256:7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
    # libtorch_cpu.so of this wheel needs both, without a GPU too.
    "nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    "nvidia-cuda-cupti==13.0.85 --hash=sha256:4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
]

_CPU_LIBRARIES = [
    "libc10.so",
    "libgomp.so.1",
    "libtorch_cpu.so",
]

_NVIDIA_LIBRARIES = [
    "libcudart.so.13",
    "libcupti.so.13",
]

def _use_root(ctx, root):
    """Links a libtorch that is already on the machine."""
    root = ctx.path(root)
    if not root.get_child("include").exists:
        fail("MIR_TORCH_ROOT=%s has no folder include; it must be an unpacked " % root +
             "libtorch, or the folder torch of a Python installation")
    ctx.symlink(root.get_child("include"), "include")
    found = []

    # A libtorch archive ships everything in lib; a wheel has NVIDIA's beside it.
    places = [root.get_child("lib"), root.dirname.get_child("nvidia").get_child("cu13").get_child("lib")]
    for library in _CPU_LIBRARIES + _NVIDIA_LIBRARIES:
        for place in places:
            if place.get_child(library).exists and library not in found:
                ctx.symlink(place.get_child(library), "lib/" + library)
                found.append(library)
    for library in ["libc10.so", "libtorch_cpu.so"]:
        if library not in found:
            fail("MIR_TORCH_ROOT=%s has no lib/%s" % (root, library))

def _impl(ctx):
    root = ctx.os.environ.get("MIR_TORCH_ROOT", "")
    if root:
        _use_root(ctx, root)
    else:
        rules = {"torch/include/": "include/"}
        for library in _CPU_LIBRARIES:
            rules["torch/lib/" + library] = "lib/" + library
        for library in _NVIDIA_LIBRARIES:
            rules["nvidia/cu13/lib/" + library] = "lib/" + library
        unpack_wheels(ctx, "LibTorch (540 MB)", _REQUIREMENTS, rules)
    ctx.symlink(Label("//third_party/torch:torch.BUILD"), "BUILD")

torch_repository = repository_rule(
    implementation = _impl,
    environ = ["MIR_TORCH_ROOT"],
)
