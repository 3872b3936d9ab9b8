"""Figures derived from measurements, each file with a README line on where it comes from."""
