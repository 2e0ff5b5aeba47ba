"""Beside TensorFlow: ParameterServerStrategy, its one coordinator, and the workers whose functions it schedules."""
