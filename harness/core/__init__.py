"""The pure middle: specs, plans, placement, exchange. Nothing here has an effect."""
