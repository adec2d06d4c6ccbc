"""A vision transformer in parts, which devices compute one after the other: a pipeline's stages."""

import math
import os

import torch
import torch.distributed as dist
from torch import nn

from shared.cli import UserError

# Single messages are few here: before a schedule, and in evaluation.
os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")


class Part(nn.Module):
    """Some of the blocks of a vision transformer, with the names that its parameters have there.

    The first of `parts` also has what comes before the blocks, the last one what comes after them.
    Of n images, a part returns (n, tokens, features), the last one logits, (n, classes) in fp32.
    While training, `forward` computes this part alone, for a PipelineStage. In evaluation, all
    processes call it with the same images, pass results on, and return the logits of the last one.
    """

    def __init__(self, vit, index, parts):
        super().__init__()
        self.index, self.first, self.last = index, index == 0, index == parts - 1
        self.parts, self.tokens = parts, (vit.seq_length, vit.hidden_dim)
        self.images, self.classes = (3, vit.image_size, vit.image_size), vit.num_classes
        layers = vit.encoder.layers
        if parts > len(layers):
            raise UserError(f"--devices: {parts} devices, but only {len(layers)} blocks to divide")
        self.encoder = nn.Module()
        self.encoder.layers = layers[
            len(layers) * index // parts : len(layers) * (index + 1) // parts
        ]
        if self.first:
            self.conv_proj, self.class_token = vit.conv_proj, vit.class_token
            self.encoder.pos_embedding = vit.encoder.pos_embedding
        if self.last:
            self.encoder.ln, self.heads = vit.encoder.ln, vit.heads

    @property
    def dtype(self):
        return next(self.parameters()).dtype

    def forward(self, x):
        if self.training:
            return self._compute(x)
        here = torch.empty(len(x), *self.tokens, dtype=self.dtype, device=x.device)
        if self.first:
            here = x
        else:
            dist.recv(here, self.index - 1)
        here = self._compute(here)
        if not self.last:
            dist.send(here, self.index + 1)
        return self.of_last(here if self.last else None, x)

    def _compute(self, x):
        if self.first:  # as in torchvision
            x = self.conv_proj(x.to(self.dtype)).flatten(2).transpose(1, 2)
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
            x = x + self.encoder.pos_embedding
        x = self.encoder.layers(x)
        if not self.last:
            return x.contiguous()  # it is sent
        return self.heads(self.encoder.ln(x)[:, 0]).float()

    def ends(self, n):
        """Return what this part takes and returns for n images, as tensors without memory."""
        between = torch.empty(n, *self.tokens, dtype=self.dtype, device="meta", requires_grad=True)
        images = torch.empty(n, *self.images, device="meta")
        logits = torch.empty(n, self.classes, device="meta", requires_grad=True)
        return images if self.first else between, logits if self.last else between

    def micro_batch(self, images, most):
        """Return into how many images a batch is divided: equally, and one or more per part."""
        return math.gcd(len(images), len(images) // self.parts, most)

    def of_last(self, logits, images):
        """Return the logits of the last part, which the other processes do not have."""
        if not self.last:
            size = len(images), self.classes
            logits = torch.empty(size, dtype=torch.float32, device=images.device)
        logits = logits.detach()
        if self.parts > 1:
            dist.broadcast(logits, self.parts - 1)
        return logits

    def whole_state(self):
        """Return the state_dict() of the whole model on the host, in the first process."""
        mine = {name: tensor.cpu() for name, tensor in self.state_dict().items()}
        everyone = [mine] * self.parts
        if self.parts > 1:
            dist.gather_object(mine, everyone if self.first else None)
        return {name: tensor for part in everyone for name, tensor in part.items()}
