"""`python -m shared calibrate`: measurements of a real GPU, beside an emulated one of its kind."""
