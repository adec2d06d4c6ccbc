"""`python -m shared.calibrate`: compares measurements on a GPU with what was predicted."""
