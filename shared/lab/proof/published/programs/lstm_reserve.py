"""The memory that cuDNN keeps for the backward pass of four recurrent layers.

Report: https://github.com/pytorch/pytorch/issues/2895 (October 2017, P100, PyTorch of that time):
"reserve size 736000000" for LSTM with 3,038,090 weights, 864000000 for GRU with 2,279,370. The
weights fit 123 inputs, four layers of 320 and ten classes; 25,000 steps in all (that is, sequences
times length) fit both sizes: per step and layer 5 values of LSTM, 6 of GRU, and 1 between layers.
Reading: bytes of cuDNN's reserve, the fourth result of torch._cudnn_rnn. --gru for the second.
"""

import sys

import torch

gru = "--gru" in sys.argv
length, sequences, inputs, width, layers = 1_000, 25, 123, 320, 4
net = (torch.nn.GRU if gru else torch.nn.LSTM)(inputs, width, layers).cuda()
weights = sum(p.numel() for p in net.parameters()) + (width + 1) * 10
assert weights == (2_279_370 if gru else 3_038_090), weights
x = torch.randn(length, sequences, inputs, device="cuda")
state = torch.zeros(layers, sequences, width, device="cuda")
seed = torch.empty(0, device="cuda")
mode = 3 if gru else 2
kept = torch._cudnn_rnn(
    *(x, net._flat_weights, 4, net._flat_weights[0].new_empty(0), state, None if gru else state),
    *(mode, width, 0, layers, False, 0.0, True, False, [], None),
)[3]
print("figure:", kept.numel() * kept.element_size(), "bytes")
