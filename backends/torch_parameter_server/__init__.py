"""PyTorch parameter servers without gRPC: tensors and gradients go point to point, over Gloo or MPI."""
