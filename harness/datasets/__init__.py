"""Data sets are made, converted, checked and timed here, on the controller's side."""
