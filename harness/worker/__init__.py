"""The code beside a framework: the measured loop, the clock, events and checks. Python 3.9; standard library and NumPy."""
