"""An example of a backend that comes in a package of its own."""
