"""Beside Caffe2: its data-parallel model over Gloo or MPI."""
