"""An emulated GPU: PyTorch's own CUDA build runs where no GPU is, and its memory is counted."""
