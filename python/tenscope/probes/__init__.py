"""Probes on torch modules: calls, gradients, state, local variables, and values of all ranks."""
