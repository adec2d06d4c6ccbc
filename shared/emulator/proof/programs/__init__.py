"""Programs of our own words for published figures; the tables of rows name them FILE.FUNCTION.

A function returns the bytes that were published, {name: bytes} if they are several, and nothing
where the process's peaks are compared. What only some need is imported there: each runs under the
PyTorch that its row names. GPUs and settings that the tables have are not repeated here.
"""
