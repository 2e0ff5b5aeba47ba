"""The images of a data set, in ImageNet's folder layout or in TFRecord shards, through each framework's native pipeline."""
