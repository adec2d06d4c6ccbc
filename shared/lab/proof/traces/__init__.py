"""Allocator traces of real GPUs, from public repositories, beside the same work emulated."""
