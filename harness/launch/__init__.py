"""Launchers execute a plan, watch it and clean up. They know nothing about backends."""
