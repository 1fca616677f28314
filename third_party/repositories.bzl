"""Every dependency of MIR, one repository rule each."""

load("//third_party/abseil:repository.bzl", "abseil_repository")
load("//third_party/bazel_tools:repository.bzl", "bazel_tools_repositories")
load("//third_party/benchmark:repository.bzl", "benchmark_repository")
load("//third_party/googletest:repository.bzl", "googletest_repository")
load("//third_party/nifti:repository.bzl", "nifti_repository")
load("//third_party/nlohmann_json:repository.bzl", "nlohmann_json_repository")
load("//third_party/png:repository.bzl", "png_repository")
load("//third_party/torch:cuda_repository.bzl", "torch_cuda_repository")
load("//third_party/torch:repository.bzl", "torch_repository")
load("//third_party/zlib:repository.bzl", "zlib_repository")

def mir_repositories():
    """Declares MIR's dependencies; a WORKSPACE that uses MIR calls it too."""
    bazel_tools_repositories()
    abseil_repository(name = "abseil-cpp")
    benchmark_repository(name = "google_benchmark")
    googletest_repository(name = "googletest")
    nifti_repository(name = "nifti")
    nlohmann_json_repository(name = "nlohmann_json")
    png_repository(name = "png")
    torch_repository(name = "torch")
    torch_cuda_repository(name = "torch_cuda")
    zlib_repository(name = "zlib")
