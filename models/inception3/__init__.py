"""InceptionV3 without its auxiliary head."""
