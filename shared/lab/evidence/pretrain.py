"""Recreate the tiny preset's weights: pretrain a small ViT on characters rendered from fonts.

Fine-tuning on handwritten digits then takes one epoch, as fine-tuning from ImageNet does at full
size. The fonts come with matplotlib. The characters are slanted, stretched and thickened at random,
and reduced to 8x8 counts like the digits of scikit-learn. This takes about 8 minutes on two cores.
"""

import os
import string
import types
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from tqdm import trange

from shared.images import data, models
from shared.run.cli import Parser, try_writing

# Lower-case letters only where they look different from the capitals.
CHARACTERS = string.digits + string.ascii_uppercase + "abdefghnqrt"
PICTURES = 30_000
EPOCHS = 6
BATCH_SIZE = 64


def text_fonts():
    """Return the font files inside matplotlib that have letters and digits."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    symbols = ("Sym", "cmex", "cmmi", "cmsy", "NonUni", "Display", "Siz")
    return sorted(str(f) for f in folder.glob("*.ttf") if not any(s in f.name for s in symbols))


def render(character, font, rng):
    """Draw a character with a random distortion: (8, 8) in [0, 1], the share of ink in each cell.

    Return None if the font lacks the character.
    """
    image = Image.new("L", (64, 64))
    stroke = int(rng.integers(0, 2))
    where = {"xy": (32, 32), "anchor": "mm"}
    ImageDraw.Draw(image).text(text=character, font=font, fill=255, stroke_width=stroke, **where)
    angle = rng.uniform(-0.25, 0.25)
    shear = rng.uniform(-0.35, 0.35)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = rotation @ np.array([[1, shear], [0, 1]]) @ np.diag(rng.uniform(0.7, 1.3, 2))
    # The center stays where it is, but for two pixels.
    shift = np.array([32, 32]) - matrix @ np.array([32, 32]) + rng.uniform(-2, 2, 2)
    affine = (*matrix[0], shift[0], *matrix[1], shift[1])
    image = image.transform(image.size, Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    # Black and white, as the scans were from which the digits were counted.
    ink = np.asarray(image) > 100
    rows, columns = np.where(ink)
    if len(rows) < 20:
        return None  # an empty box, or a missing glyph
    # Cut out, scaled to a height of 32 pixels and centered, as the digits were.
    inked = ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    cut = Image.fromarray(inked.astype(np.uint8) * 255)
    width = int(np.clip(cut.width / cut.height * 32 * rng.uniform(0.8, 1.3), 8, 32))
    picture = np.zeros((32, 32))
    left = (32 - width) // 2
    picture[:, left : left + width] = np.asarray(cut.resize((width, 32))) > 127
    return picture.reshape(8, 4, 8, 4).mean((1, 3))


def characters(n, seed):
    """Return n rendered characters, (n, 8, 8) in fp32, and their indices in CHARACTERS, (n,)."""
    rng = np.random.default_rng(seed)
    fonts = {(f, size): ImageFont.truetype(f, size) for f in text_fonts() for size in range(26, 40)}
    keys = list(fonts)  # rng.integers() chooses among them, so the order must not change
    pictures = []
    labels = []
    while len(pictures) < n:
        label = int(rng.integers(len(CHARACTERS)))
        picture = render(CHARACTERS[label], fonts[keys[rng.integers(len(keys))]], rng)
        if picture is not None:
            pictures.append(picture)
            labels.append(label)
    return torch.tensor(np.stack(pictures), dtype=torch.float32), torch.tensor(labels)


def pretrain():
    """Return the state dict of a tiny ViT trained on characters, and the accuracy on new images."""
    torch.manual_seed(0)
    options = types.SimpleNamespace(model="vit_tiny", image_px=models.image_px("vit_tiny"))
    model = models.vit(options, types.SimpleNamespace(classes=CHARACTERS))
    images, labels = characters(PICTURES, seed=0)
    # The same fonts, distorted by other random numbers.
    test_images, test_labels = characters(1000, seed=1)
    steps = EPOCHS * (PICTURES // BATCH_SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    for _ in trange(EPOCHS, unit="epoch"):
        # Without the last batch, a smaller one for which the schedule has no step.
        for batch in torch.randperm(PICTURES).split(BATCH_SIZE)[: steps // EPOCHS]:
            logits = model(data.enlarge(images[batch], models.image_px("vit_tiny")))
            F.cross_entropy(logits, labels[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    with torch.no_grad():
        predicted = model(data.enlarge(test_images, models.image_px("vit_tiny"))).argmax(1)
    return model.state_dict(), (predicted == test_labels).float().mean().item()


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    out = models.TINY_WEIGHTS
    try_writing(out)
    state, accuracy = pretrain()
    torch.save(state, part := out.with_name(f"{out.name}.part"))
    os.replace(part, out)
    megabytes = out.stat().st_size / 1e6
    print(f"{accuracy:.1%} of new characters recognized; {out} has {megabytes:.2f} MB")
