"""The flight recorder and debugger for tensors."""
