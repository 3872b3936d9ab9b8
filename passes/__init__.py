"""Passes over the layer IR: one technique a file, found by importing this folder's modules."""
