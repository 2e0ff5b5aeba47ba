"""What starts a node's processes, and how it is spoken to."""
