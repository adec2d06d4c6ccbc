"""Code that several test files share, and programs that they start. No file here is a test."""
