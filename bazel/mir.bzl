"""The rules that MIR's BUILD files use."""

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    # LibTorch counts in int64_t, the standard library in size_t.
    "-Wno-sign-compare",
    # Without it ATen/core/Tensor.h includes every operator.
    "-DAT_PER_OPERATOR_HEADERS",
]

# One object per source: everything of ours is linked statically, LibTorch not.
_LINKSTATIC = True

def mir_cc_library(name, copts = [], **kwargs):
    """A library of MIR: warnings are errors, linked statically.

    Args:
      name: the target.
      copts: further compiler options.
      **kwargs: as cc_library.
    """
    native.cc_library(
        name = name,
        copts = _COPTS + copts,
        linkstatic = _LINKSTATIC,
        **kwargs
    )

def mir_cc_binary(name, copts = [], **kwargs):
    """A program of MIR.

    Args:
      name: the target.
      copts: further compiler options.
      **kwargs: as cc_binary.
    """
    native.cc_binary(
        name = name,
        copts = _COPTS + copts,
        linkstatic = _LINKSTATIC,
        **kwargs
    )

def mir_cc_test(name, copts = [], size = "small", **kwargs):
    """A test of MIR; `size` is small (a minute) unless said.

    Args:
      name: the target.
      copts: further compiler options.
      size: as cc_test.
      **kwargs: as cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = _COPTS + copts,
        linkstatic = _LINKSTATIC,
        **kwargs
    )

def mir_cc_benchmark(name, srcs, deps, smoke_args = [], **kwargs):
    """A Google Benchmark, and a test that runs it for the shortest time.

    Args:
      name: the binary; the test is `<name>_smoke_test`.
      srcs: the sources; they register benchmarks and have no main.
      deps: the libraries, without Benchmark itself.
      smoke_args: further arguments of the smoke test, such as a filter.
      **kwargs: as cc_binary.
    """
    mir_cc_binary(
        name = name,
        srcs = srcs,
        deps = deps + ["@google_benchmark//:benchmark_main"],
        testonly = True,
        **kwargs
    )
    native.sh_test(
        name = name + "_smoke_test",
        size = "small",
        srcs = ["@mir//bazel:run_benchmark_once.sh"],
        args = ["$(location :%s)" % name] + smoke_args,
        data = [":" + name],
    )

def mir_training_binary(name, model, family, **kwargs):
    """The training program of one model, which `//tools:train` starts.

    Args:
      name: the target, `train_<model>`.
      model: the model's name in mir/models/models.json.
      family: the library that registers it.
      **kwargs: as cc_binary.
    """
    mir_cc_binary(
        name = name,
        srcs = ["@mir//mir/training:train_model.cc"],
        local_defines = ["MIR_MODEL_NAME=\\\"%s\\\"" % model],
        deps = [
            family,
            "@mir//mir/models:registry",
            "@mir//mir/training:train_main",
            "@nlohmann_json//:json",
        ],
        **kwargs
    )
