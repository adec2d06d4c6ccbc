"""The Transformer of a billion weights on Lightning's page about FSDP, with DDP and Adam."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lightning.pytorch.demos import Transformer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
model = Transformer(vocab_size=33278, nlayers=32, nhid=4096, ninp=1024, nhead=64)
model = DistributedDataParallel(model.cuda())
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for _ in range(3):
    tokens = torch.zeros(1, 35, dtype=torch.long, device="cuda")
    loss = F.nll_loss(model(tokens, tokens), tokens.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
