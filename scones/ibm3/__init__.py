"""Synthetic languages: IBM Model 3, fitted to real text and sampled at a temperature."""
