"""Single operations that need more memory than somebody expected."""

import torch
from torch import nn

from proof.programs.counters import asked, peak


def boolean_index():
    """Read a tensor through a mask, which needs the indices of the elements: 16 bytes for each.

    Peaks of 1,600,126,976 and 2,401,239,040 bytes after the first two lines are reported, too.
    """
    n = 20_000
    matrix = torch.randn(n, n, device="cuda")
    off_diagonal = ~torch.eye(n, dtype=torch.bool, device="cuda")
    matrix[off_diagonal]
    return peak()


def expanded_product(half=True):
    """Multiply a view of one matrix under autocast, which makes 1,024 copies of it in fp16.

    Returned is what is allocated in the end, with the output and its graph, after ten rounds.
    """
    rows, width, batch = 41_292, 64, 1_024
    base = torch.randn(rows, width, device="cuda")
    for _ in range(10):
        vectors = torch.randn(batch, width, requires_grad=True, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            kept = [base.expand(batch, -1, -1).bmm(vectors.unsqueeze(-1))]
        del vectors
        torch.cuda.empty_cache()
    return torch.cuda.memory_allocated() if kept else None


def sparse_product():
    """Ask for the gradient of a sparse matrix, which PyTorch computes as a dense matrix."""
    n, entries = 110_000, 860_000
    places = torch.randint(0, n, (2, entries))
    sparse = torch.sparse_coo_tensor(places, torch.randn(entries), (n, n)).cuda().requires_grad_()
    dense = torch.randn(n, 200).cuda().requires_grad_()
    return asked(torch.sparse.mm(sparse, dense).sum().backward)


def einsum_of_windows():
    """Multiply a view of 901 x 901 windows, which costs nothing until einsum copies it."""
    image = torch.randn(1, 3, 1000, 1000, device="cuda")
    kernel = torch.randn(3, 100, 100, device="cuda")
    windows = image.unfold(2, 100, 1).unfold(3, 100, 1)
    return asked(lambda: torch.einsum("bchwij,cij->bhw", windows, kernel))


def wide_svd():
    """Find singular values of a wide matrix, which took its square until PyTorch corrected it."""
    wide = torch.randn(3, 1_048_576, device="cuda")
    return asked(lambda: torch.linalg.svd(wide, full_matrices=False))


def pad_empty_volume():
    """Pad an empty volume to sizes that were given in the wrong unit."""
    volume = torch.empty(1, 1, 96, 0, 0, device="cuda")
    sizes = [0, 509_628, 0, 457_224, 96, 0]
    return asked(lambda: nn.functional.pad(volume, sizes, "constant", None))


def linear_of_wrong_shape():
    """Return what is reserved when a linear layer gets an input of the wrong shape.

    PyTorch 1.9 then asked for 56 GiB; since 1.10 it checks the shape first.
    """
    pictures = torch.rand(2048, 256, 7, 7).cuda()
    weight, bias = torch.rand(4096, 9216).cuda(), torch.rand(4096).cuda()
    try:
        nn.functional.linear(pictures, weight, bias)
    except RuntimeError as error:
        print(type(error).__name__, str(error)[:60])
    return torch.cuda.memory_reserved()


def conv2d_half(last=1024):
    """Return what is reserved after a convolution in fp16, over ever wider images.

    In the report the layer comes from diffusers; without an adapter it is nn.Conv2d.
    """
    layer = nn.Conv2d(256, 256, 3, padding=1).half().cuda()
    for width in range(1024, last + 1, 128):
        images = torch.zeros(1, 256, 2048, width).half().cuda()
        layer(images)
        reserved = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
    return reserved


def conv3d_bf16():
    """Convolve a video without gradients; the output has 5.57 GiB."""
    with torch.no_grad():
        layer = nn.Conv3d(3, 128, 3, padding=1).to("cuda", torch.bfloat16)
        video = torch.rand([1, 3, 24, 740, 1316], dtype=torch.bfloat16).to("cuda")
        layer(video)
    return peak()


def conv_transpose():
    """Ask cuDNN for its workspace of a transposed convolution; output and input have 2 GiB each."""
    torch.backends.cudnn.deterministic = True
    layer = nn.ConvTranspose2d(1, 1, 1, bias=False).cuda().half()
    images = torch.randn(1_024, 1, 1_024, 1_024, dtype=torch.half, device="cuda")
    return asked(lambda: layer(images))


def recurrent_reserve(gru=False):
    """Return what cuDNN keeps for the backward pass of four recurrent layers.

    The reported weights fit 123 inputs, layers of 320 and ten classes; 25,000 steps in all, that is
    sequences times length, fit both sizes.
    """
    length, sequences, inputs, width, layers = 1_000, 25, 123, 320, 4
    net = (nn.GRU if gru else nn.LSTM)(inputs, width, layers).cuda()
    weights = sum(p.numel() for p in net.parameters()) + (width + 1) * 10
    assert weights == (2_279_370 if gru else 3_038_090), weights
    x = torch.randn(length, sequences, inputs, device="cuda")
    state = torch.zeros(layers, sequences, width, device="cuda")
    flat, none = net._flat_weights, net._flat_weights[0].new_empty(0)
    kept = torch._cudnn_rnn(
        *(x, flat, 4, none, state, None if gru else state),
        *(3 if gru else 2, width, 0, layers, False, 0.0, True, False, [], None),
    )[3]
    return kept.nbytes
