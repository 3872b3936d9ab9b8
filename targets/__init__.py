"""Targets: one folder for each family of chips that moec compiles for and models."""
