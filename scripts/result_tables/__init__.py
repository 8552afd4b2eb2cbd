"""Tables and sentences of the documents, each figure read from results/*.json.

A new block is a function that returns lines, named in the `BLOCKS` of the file of its subject.
"""

from . import benchmark, devices, frontier, speed, verification

BLOCKS = {
    name: block
    for part in (benchmark, devices, frontier, speed, verification)
    for name, block in part.BLOCKS.items()
}
