"""Data sets are made here, on the controller's side."""
