"""Allocator traces of real GPUs, recorded by strangers, beside the same work emulated."""
