"""Reading a run back: recordings, events and tensors."""
