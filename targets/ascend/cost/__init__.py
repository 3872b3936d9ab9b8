"""Cycles of single instructions and copies as functions of size, dtype and alignment."""
