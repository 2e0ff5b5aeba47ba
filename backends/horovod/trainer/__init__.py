"""Beside TensorFlow or PyTorch: Horovod's ring allreduce."""
