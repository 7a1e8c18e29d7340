"""python -m tenscope.run [options] script.py args…: records a PyTorch script with no change to it."""

import sys

from tenscope.launch.command import main

if __name__ == "__main__":
    _this = sys.modules["__main__"]  # kept alive: the program becomes __main__
    main(sys.argv[1:])
