#pragma once

#include <memory>

#include "tracer/watcher.hpp"

namespace tenscope::python {

// One change, as Python sees it.
struct Change {
  std::shared_ptr<CallLog> log;
  ChangeItem item;
};

// The changes of one call: a sequence of Change.
struct Changes {
  std::shared_ptr<CallLog> log;
};

}  // namespace tenscope::python
