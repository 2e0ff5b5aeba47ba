"""The pure middle: what is measured, the plan, placement, exchange. Nothing here has an effect."""
