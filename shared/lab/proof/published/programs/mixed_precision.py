"""Three layers, SGD without foreach, gradients zeroed and not freed; in fp32 or fp16 (argument).

The recipe trains in fp32 first. When it begins anew, the last loss of that run keeps its model and
gradients alive until the next loss is computed.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

half = sys.argv[1] == "fp16"
data = [torch.rand(512, 4096, device="cuda") for _ in range(100)]  # 50 batches, and their targets
for amp, updates in [(False, 1 if half else 4), (True, 4)][: 1 + half]:
    layers = [nn.Linear(4096, 4096) for _ in range(3)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=False)
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for x, y in [*zip(data, data[50:])][:updates]:
        with torch.autocast("cuda", torch.float16, enabled=amp):
            output = model(x)
            loss = F.mse_loss(output, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)
print(f"figure: {torch.cuda.max_memory_allocated()} bytes")
