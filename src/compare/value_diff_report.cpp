#include "compare/value_diff.hpp"

namespace tenscope {

void write_json(JsonWriter& json, const ValueDiff& diff) {
  json.begin_object().key("equal").boolean(!diff.is_different());
  json.key("a").text(diff.a).key("b").text(diff.b);
  json.key("tensors").number(diff.tensors).key("values").number(diff.values).key("files").number(diff.files);
  json.key("different")
      .number(diff.different)
      .key("one_sided")
      .number(diff.one_sided)
      .key("trouble")
      .number(diff.trouble);
  json.key("entries").begin_array();
  for (const auto& entry : diff.entries) {
    json.begin_object().key("name").text(entry.name).key("status").text(to_string(entry.status));
    json.key("message").text(entry.message);
    if (entry.tensor != nullptr) {
      json.key("tensor");
      write_json(json, *entry.tensor);
    }
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace tenscope
