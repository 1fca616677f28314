"""What --config=cuda adds to LibTorch: link inputs, and headers for NCCL.

Used through the flags //bazel:cuda_libraries and //bazel:cuda_headers only.
Fetched when first used (2.5 GB of wheels, 2.9 GB unpacked). The files of @torch
are those of the same wheel, so objects compiled against it link here unchanged.
"""

load("//third_party/torch:wheels.bzl", "unpack_wheels")

_REQUIREMENTS = [
    "torch==2.11.0 --hash=sha256:7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
    "nvidia-cublas==13.1.0.3 --hash=sha256:ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171",
    # Both hold headers that those of the runtime include.
    "nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
    "nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
    "nvidia-cuda-nvrtc==13.0.88 --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
    "nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    "nvidia-cudnn-cu13==9.19.0.56 --hash=sha256:d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf",
    "nvidia-cufft==12.0.0.61 --hash=sha256:6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3",
    "nvidia-cufile==1.15.1.6 --hash=sha256:08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44",
    "nvidia-curand==10.4.0.35 --hash=sha256:1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
    "nvidia-cusolver==12.0.4.66 --hash=sha256:0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112",
    "nvidia-cusparse==12.6.3.3 --hash=sha256:2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b",
    "nvidia-cusparselt-cu13==0.8.0 --hash=sha256:25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd",
    "nvidia-nccl-cu13==2.28.9 --hash=sha256:e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42",
    "nvidia-nvjitlink==13.0.88 --hash=sha256:13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b",
    "nvidia-nvshmem-cu13==3.4.5 --hash=sha256:290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80",
]

# The whole names, or how they begin. libtorch_cpu.so, libc10.so, libcudart and
# libcupti are in @torch: a program must not load two of any.
_LIBRARIES = {
    "torch/lib/": [
        "libc10_cuda.so",
        "libcaffe2_nvrtc.so",
        "libtorch_cuda.so",
        "libtorch_cuda_linalg.so",
        "libtorch_nvshmem.so",
    ],
    "nvidia/cu13/lib/": [
        "libcublas.so.",
        "libcublasLt.so.",
        "libcufft.so.",
        "libcufile.so.",
        "libcurand.so.",
        "libcusolver.so.",
        "libcusparse.so.",
        "libnvJitLink.so.",
        "libnvrtc-builtins.so.",
        "libnvrtc.so.",
    ],
    # libcudnn.so opens the others when they are needed.
    "nvidia/cudnn/lib/": ["libcudnn"],
    "nvidia/cusparselt/lib/": ["libcusparseLt.so."],
    "nvidia/nccl/lib/": ["libnccl.so."],
    "nvidia/nvshmem/lib/": ["libnvshmem_host.so."],
}

_HEADERS = [
    "nvidia/cu13/include",
    "nvidia/nccl/include",
]

_BUILD = """\
load("@mir//third_party/torch:link_only.bzl", "link_only")

package(default_visibility = ["//visibility:public"])

link_only(
    name = "torch_cuda",
    library = ":libraries",
)

# Linked by folder, not as `srcs`: Bazel would link all of them into every
# program, while LibTorch and cuDNN open most by name, from the folder that they
# themselves lie in, and libcaffe2_nvrtc.so needs a driver. Without
# --no-as-needed libtorch_cuda.so would be dropped, and with it its kernels.
cc_library(
    name = "libraries",
    linkopts = [
        "-L{lib}",
        "-Wl,-rpath,{lib}",
        "-Wl,--push-state,--no-as-needed",
        "-ltorch_cuda",
        "-lc10_cuda",
        "-Wl,--pop-state",
    ],
)

# For the few files that include LibTorch's CUDA or NCCL headers.
cc_library(
    name = "headers",
    hdrs = glob(
        ["include/**"],
        exclude = ["include/cccl/**"],
    ),
    defines = ["USE_C10D_NCCL"],
    includes = ["include"],
)
"""

def _use_root(ctx, root):
    """Links what a libtorch or a Python installation has."""
    root = ctx.path(root)
    site = root.dirname
    for folder, names in _LIBRARIES.items():
        # A libtorch archive ships everything in lib; a wheel has NVIDIA's
        # libraries beside it.
        for place in [root.get_child("lib"), ctx.path("%s/%s" % (site, folder))]:
            if not place.exists:
                continue
            for file in place.readdir():
                link = ctx.path("lib/" + file.basename)
                if not link.exists and any([
                    file.basename == name or
                    (not name.endswith(".so") and file.basename.startswith(name))
                    for name in names
                ]):
                    ctx.symlink(file, link)
    if not ctx.path("lib/libtorch_cuda.so").exists:
        fail("MIR_TORCH_ROOT=%s has no lib/libtorch_cuda.so: " % root +
             "a libtorch with CUDA is needed for --config=cuda")

    # The first place that has a name wins.
    toolkit = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for place in [
        ctx.path("%s/%s" % (site, folder))
        for folder in _HEADERS
    ] + [ctx.path(toolkit + "/include")]:
        if place.exists:
            for header in place.readdir():
                link = ctx.path("include/" + header.basename)
                if not link.exists:
                    ctx.symlink(header, link)

def _impl(ctx):
    root = ctx.os.environ.get("MIR_TORCH_ROOT", "")
    if root:
        _use_root(ctx, root)
    else:
        rules = {folder + "/": "include/" for folder in _HEADERS}
        for folder, names in _LIBRARIES.items():
            for name in names:
                rules[folder + name] = "lib/" + name
        unpack_wheels(ctx, "LibTorch's CUDA libraries (2.5 GB)", _REQUIREMENTS, rules)
    ctx.file("BUILD", _BUILD.format(lib = ctx.path("lib")))

torch_cuda_repository = repository_rule(
    implementation = _impl,
    environ = [
        "CUDA_HOME",
        "MIR_TORCH_ROOT",
    ],
)
