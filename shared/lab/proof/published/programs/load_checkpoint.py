"""A checkpoint read onto the GPU where the model already is: everything twice.

Report: https://github.com/espnet/espnet/issues/5615 (OWSM, 1.0 billion weights in fp32): current
3881 MiB, peak 7762 after torch.load with the GPU as map_location; 3881 when read on the host.
Reading: peak of allocated memory. --host for the second.
"""

import argparse
import os
import tempfile

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--host", action="store_true")
args = parser.parse_args()


def build():
    layers = [nn.Linear(4096, 4096, bias=False) for _ in range(60)]
    return nn.Sequential(*layers, nn.Linear(4096, 2624, bias=False))


path = os.path.join(tempfile.mkdtemp(), "weights.pt")
model = build()
torch.save(model.state_dict(), path)
model.cuda()
weights = torch.load(path, map_location="cpu" if args.host else "cuda", weights_only=True)
model.load_state_dict(weights)
del weights
os.remove(path)
print("figure:", torch.cuda.max_memory_allocated() / 2**20, "MiB")
