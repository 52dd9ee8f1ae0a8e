"""The map of the evidence: columns of a clean history are changed in five ways, and what is *held* all the same is explained.

`python -m tools.evidence` makes the map and writes docs/evidence.md.
"""
