"""Tests on a real cluster of Ray, of several processes on this machine."""
