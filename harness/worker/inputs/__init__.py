"""Input data: synthetic batches, and JPEGs in ImageNet's folder layout through each framework's native pipeline."""
