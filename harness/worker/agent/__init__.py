"""The programs that start a node's processes, and their line to the controller."""
