#include "format/pickle.hpp"

#include "format/pickler.hpp"
#include "format/pt.hpp"
#include "format/pt_legacy.hpp"
#include "format/storage_plan.hpp"
#include "format/unpickler.hpp"

namespace tenscope {

Value read_pickle(const Source& source, const LoadOptions& options) {
  const bool is_zip = source.size() >= 4 && source.text(0, 4, "magic") == "PK\3\4";
  if (is_zip || is_legacy_pt(source)) return read_pt(source, options);
  Budget budget(options, source.size());
  Unpickler machine(source, options, budget);
  machine.run();
  return machine.finish();
}

void write_pickle(OutputFile& file, const Value& value) {
  const StoragePlan plan(value);
  Pickler(plan, Pickler::Flavor::Plain).pickle_to(file, value);
}

}  // namespace tenscope
