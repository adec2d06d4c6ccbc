"""Padding an empty volume to sizes that were given in the wrong unit.

Report: https://github.com/MIC-DKFZ/napari-nninteractive/issues/3 (2025, a card of 44.64 GiB, an A40
or L40S): torch.nn.functional.pad of a 1 x 1 x 96 x 0 x 0 tensor by [0, 509628, 0, 457224, 96, 0]:
"CUDA out of memory. Tried to allocate 166664.71 GiB".
Reading: the amount that the error names.
"""

import re

import torch

volume = torch.empty(1, 1, 96, 0, 0, device="cuda")
asked = 0.0
try:
    torch.nn.functional.pad(volume, [0, 509_628, 0, 457_224, 96, 0], "constant", None)
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("figure:", asked, "GiB")
