"""Prints what the metrics.json of a list says of each pair, but for the time."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    metrics = json.load(file)
for pair in metrics["pairs"]:
    del pair["seconds"]
print(json.dumps(metrics, sort_keys=True))
