#include "bindings/module.hpp"

NB_MODULE(_core, m) {
  m.doc() = "The native core of tenscope.";
  m.attr("version") = TENSCOPE_VERSION;
  nb::set_leak_warnings(false);  // a traced program's stderr is its own
  init_errors(m);
  init_against(m);
  init_run(m);
  init_reader(m);
  init_arrow(m);
  init_format(m);
  init_probe(m);
  init_tracer(m);
  init_rundiff(m);
  init_viewer(m);
  init_compare(m);
  init_suggest(m);
  init_fetch(m);
  init_held_code(m);
}
