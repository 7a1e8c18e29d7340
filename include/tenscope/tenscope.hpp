#pragma once

#include "tenscope/dtype.hpp"
#include "tenscope/error.hpp"
#include "tenscope/event.hpp"
#include "tenscope/glob.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"
#include "tenscope/span.hpp"
#include "tenscope/summary.hpp"
#include "tenscope/tensor_view.hpp"
