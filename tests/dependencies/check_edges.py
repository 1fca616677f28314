#!/usr/bin/env python3
"""Fails, naming each edge, where a room depends on one that it may not.

Usage: check_edges.py GRAPH...   (as `bazel query --output=graph
--nograph:factored` writes it). Rooms are the folders of mir/; a library of a
room may depend on the rooms that ROOMS lists, directly. Programs are exempt:
they join rooms. UNREACHABLE holds for programs too, and through others.
"""

import collections
import re
import sys

# base holds small helpers below all others, so every room may depend on it.
ROOMS = {
    "base": [],
    "autograd": [],
    "checkpoint": [],
    "launch": [],
    "precision": [],
    "testing": [],
    "geometry": ["autograd", "precision"],
    "data": ["geometry"],
    "distributed": ["launch"],
    "losses": ["geometry", "precision"],
    "metrics": ["geometry"],
    "models": ["autograd", "geometry", "losses", "precision"],
    "training": [
        "autograd",
        "checkpoint",
        "data",
        "distributed",
        "geometry",
        "launch",
        "losses",
        "metrics",
        "precision",
    ],
}

# Single targets that a room may depend on besides: training knows what a model
# is, how models are listed and what they normalise by, but no model.
TARGETS = {
    "training": [
        "//mir/models:model_list",
        "//mir/models:rank_statistics",
        "//mir/models:registration_model",
    ],
}

# (from, to, but not): no way through the graph may lead from one to the other.
UNREACHABLE = [
    (r"//mir/launch[:/]", r"@torch//", None),
    (r"//tools:train$", r"@torch//", None),
    (
        r"//mir/training[:/]",
        r"//mir/models[:/]",
        r"//mir/models:(registration_model|rank_statistics|model_list|models[._]json)",
    ),
]

_EDGE = re.compile(r'^ *"([^"]+)" -> "([^"]+)"$')


def read_edges(text):
    """Returns {label: [labels that it depends on]}, in the text's order."""
    edges = collections.defaultdict(list)
    for line in text.splitlines():
        if match := _EDGE.match(line):
            edges[match[1]].append(match[2])
    return edges


def room_of(label):
    """Returns the room of `label`, or None where it is in none."""
    match = re.match(r"//mir/([^:/]+)", label)
    return match[1] if match else None


def forbidden_edges(edges):
    """Yields a line for each edge between rooms that is not allowed."""
    for label, targets in edges.items():
        room = room_of(label)
        if room is None:
            continue
        if room not in ROOMS:
            yield f"{label}: mir/{room} is in no table of check_edges.py"
            continue
        allowed = {room, "base", *ROOMS[room]}
        for target in targets:
            # Tests are not in the graph, so a library that reaches
            # mir/testing is itself for tests alone: Bazel sees to it.
            other = room_of(target)
            if other is None or other in allowed or other == "testing":
                continue
            if target not in TARGETS.get(room, []):
                yield (
                    f"{label} -> {target}: mir/{room} may depend on "
                    + ", ".join(f"mir/{name}" for name in sorted(allowed - {room}))
                )


def path_to(edges, start, goal, but_not):
    """Returns a shortest way from `start` to a match of `goal`, or None."""
    came_from = {start: None}
    queue = collections.deque([start])
    while queue:
        label = queue.popleft()
        if re.match(goal, label) and not (but_not and re.match(but_not, label)):
            path = []
            while label is not None:
                path.append(label)
                label = came_from[label]
            return path[::-1]
        for target in edges.get(label, []):
            if target not in came_from:
                came_from[target] = label
                queue.append(target)
    return None


def forbidden_paths(edges):
    """Yields a line for each way through the graph that must not be."""
    for source, goal, but_not in UNREACHABLE:
        for label in edges:
            if re.match(source, label):
                if path := path_to(edges, label, goal, but_not):
                    yield " -> ".join(path)


def main(paths):
    edges = collections.defaultdict(list)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for label, targets in read_edges(file.read()).items():
                edges[label] += targets
    if not any(room_of(label) for label in edges):
        print(f"error: no library of mir in {', '.join(paths)}", file=sys.stderr)
        return 1
    failures = [*forbidden_edges(edges), *forbidden_paths(edges)]
    for failure in failures:
        print(f"forbidden: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
