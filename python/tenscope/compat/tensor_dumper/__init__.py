"""Drop-in for Tensor Dumper: `init`, `dump`, `compare`, and metadata that tells how a run was made."""

from tenscope import __version__

from .core import TensorDumper

_dumper = TensorDumper()

init = _dumper.init
dump = _dumper.dump
compare = _dumper.compare
enable = _dumper.enable
disable = _dumper.disable
update_metadata = _dumper.update_metadata

__all__ = ["TensorDumper", "__version__", "compare", "disable", "dump", "enable", "init", "update_metadata"]
