"""Tests of who speaks."""
