#include "bindings/module.hpp"

NB_MODULE(_core, m) {
  m.doc() = "The native core of tenscope.";
  init_errors(m);
  init_run(m);
  init_reader(m);
  init_probe(m);
}
