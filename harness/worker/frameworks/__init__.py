"""What all backends of a framework do alike, beside the framework: one module for each. Python 3.9."""
