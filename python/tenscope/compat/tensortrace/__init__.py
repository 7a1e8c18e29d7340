"""tensortrace's names: values of a model's methods by path, gathered over the ranks, saved to HDF5."""

from tenscope.compat.tensortrace.h5py_tracer import H5PYSaverCallback
from tenscope.compat.tensortrace.tracer import ModelTracer, trace_model
from tenscope.compat.tensortrace.utils import stack_padded_tensors, stack_tensors

__all__ = ["H5PYSaverCallback", "ModelTracer", "stack_padded_tensors", "stack_tensors", "trace_model"]
