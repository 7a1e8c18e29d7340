#pragma once

#include <memory>
#include <vector>

#include "arrow/abi.hpp"
#include "arrow/events.hpp"

namespace tenscope::arrow {

// The table's schema: the caller's, who releases it.
ArrowSchema event_schema(const Layouts& layouts = {});

// Events as a stream of Arrow's C interface, the caller's, who releases it. It keeps `reader`, and makes batches as
// they are asked for. `requested`, where it is not null, is a wish: other layouts of texts are given, another type of
// a number is not. Throws InvalidArgument where it has other columns.
ArrowArrayStream event_stream(std::shared_ptr<const Reader> reader, std::vector<EventId> events,
                              const ArrowSchema* requested = nullptr);

}  // namespace tenscope::arrow
