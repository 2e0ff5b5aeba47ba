"""The scaling model: law, fits, predictions and explanations."""
