"""What every framework's pipeline does to an image: crop, resize, flip, normalise. Standard library only; Python 3.9.

The crop takes 8–100 % of the area at an aspect ratio of 3/4 to 4/3 (Szegedy et al., arXiv:1409.4842, section 6), is
resized bilinearly and flipped left to right every second time. Each framework draws with its own generator and resizes
with its own filter, so the ranks read the same images in the same order everywhere, but not the same pixels.
"""

AREA = (0.08, 1.0)  # of the image
ASPECT = (3 / 4, 4 / 3)  # width / height
ATTEMPTS = 10  # at a crop that fits; then the whole image

# ImageNet's statistics per channel (red, green, blue), for pixels in 0–255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
