"""Files for tests: pictures to train on, and files that are damaged."""

import numpy as np
from PIL import Image


def textures(folder, n):
    """Make n different pictures of two classes, larger than the input of the tiny model."""
    rng = np.random.default_rng(0)
    for i in range(n):
        kind, low, high = (("dark", 0, 150), ("light", 100, 255))[i % 2]
        (folder / kind).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(low, high, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / kind / f"{i:03}.png")
    return folder


def damaged(file):
    """Empty a file or cut it, and yield each time; restore it in the end."""
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"[]"):
        file.write_bytes(content)
        yield
    file.write_bytes(whole)
