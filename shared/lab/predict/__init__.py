"""`python -m shared predict`: the GPU memory that scripts need, on an emulated GPU."""
