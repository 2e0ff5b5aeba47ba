"""The common part of all backends of a framework, beside the framework: one module for each. Python 3.9."""
