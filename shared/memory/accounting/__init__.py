"""Accounts of memory: of stages, by their ledger, and of programs, by the emulator's package."""
