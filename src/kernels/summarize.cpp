#include "kernels/summarize.hpp"
