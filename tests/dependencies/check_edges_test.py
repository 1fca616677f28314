#!/usr/bin/env python3
"""Tests of check_edges.py on graphs that are small enough to read."""

import contextlib
import io
import os
import tempfile
import unittest

import check_edges


def run(*edges):
    """Returns the exit status and the words on a graph of (from, to) pairs."""
    lines = [f'  "{source}" -> "{target}"' for source, target in edges]
    text = "\n".join(["digraph mygraph {", "  node [shape=box];", *lines, "}"])
    words = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        with contextlib.redirect_stderr(words):
            status = check_edges.main([path])
    return status, words.getvalue()


class CheckEdgesTest(unittest.TestCase):
    def test_allowed_edges_pass(self):
        self.assertEqual(
            run(
                ("//mir/losses/compat:ncc", "//mir/losses:ncc"),
                ("//mir/losses:ncc", "//mir/precision:fp32_region"),
                ("//mir/losses:ncc", "//mir/base:nearest"),
                ("//mir/losses:ncc", "@torch//:torch"),
                ("//mir/training:trainer", "//mir/models:registration_model"),
                ("//mir/training:flags", "//mir/models:model_list"),
                ("//mir/models:model_list", "//mir/models:models_json.h"),
                ("//mir/models:fake_model", "//mir/testing:tensor_matchers"),
                ("//tools:register", "//mir/models/voxelmorph:vxm_dense"),
            ),
            (0, ""),
        )

    def test_names_the_edge_between_rooms(self):
        status, words = run(
            ("//mir/losses:ncc", "//mir/precision:fp32_region"),
            ("//mir/geometry:warp", "//mir/losses:ncc"),
        )
        self.assertEqual(status, 1)
        self.assertIn("//mir/geometry:warp -> //mir/losses:ncc", words)
        self.assertIn("mir/geometry may depend on mir/autograd, mir/base, mir/precision", words)
        self.assertEqual(words.count("forbidden"), 1)

    def test_base_is_below_all(self):
        status, words = run(("//mir/base:nearest", "//mir/precision:precision"))
        self.assertEqual(status, 1)
        self.assertIn("//mir/base:nearest -> //mir/precision:precision", words)

    def test_training_knows_no_model(self):
        status, words = run(("//mir/training:trainer", "//mir/models:registry"))
        self.assertEqual(status, 1)
        self.assertIn("//mir/training:trainer -> //mir/models:registry", words)

    def test_training_knows_no_model_through_others(self):
        status, words = run(
            ("//mir/training:trainer", "//mir/models:registration_model"),
            ("//mir/models:registration_model", "//mir/models/voxelmorph:vxm_dense"),
        )
        self.assertEqual(status, 1)
        self.assertIn(
            "//mir/training:trainer -> //mir/models:registration_model -> "
            "//mir/models/voxelmorph:vxm_dense",
            words,
        )

    def test_the_runner_reaches_no_libtorch(self):
        status, words = run(
            ("//tools:train", "//mir/launch:runner"),
            ("//mir/launch:runner", "//mir/base:catch_torch"),
            ("//mir/base:catch_torch", "@torch//:torch"),
        )
        self.assertEqual(status, 1)
        self.assertIn(
            "//tools:train -> //mir/launch:runner -> //mir/base:catch_torch -> "
            "@torch//:torch",
            words,
        )

    def test_a_room_that_is_not_in_the_table_fails(self):
        status, words = run(("//mir/attic:old", "//mir/base:nearest"))
        self.assertEqual(status, 1)
        self.assertIn("mir/attic", words)

    def test_an_empty_graph_fails(self):
        status, words = run()
        self.assertEqual(status, 1)
        self.assertIn("no library of mir", words)


if __name__ == "__main__":
    unittest.main()
