"""Caffe2 itself: data_parallel_model, which averages the gradients inside the net, over Gloo or MPI."""
