// The module hive._native. The header of each unit under include/hive documents it.
#include <pybind11/pybind11.h>

namespace hive {
void bind_acting(pybind11::module_& m);
void bind_losses(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_accumulator(pybind11::module_& m);
void bind_agent_losses(pybind11::module_& m);
void bind_codec(pybind11::module_& m);
void bind_dense(pybind11::module_& m);
void bind_derived_weights(pybind11::module_& m);
void bind_compiled(pybind11::module_& m);
void bind_gather(pybind11::module_& m);
void bind_optimizers(pybind11::module_& m);
void bind_philox(pybind11::module_& m);
void bind_priority_tree(pybind11::module_& m);
void bind_program(pybind11::module_& m);
void bind_replay(pybind11::module_& m);
void bind_return_distributions(pybind11::module_& m);
void bind_returns(pybind11::module_& m);
void bind_round(pybind11::module_& m);
void bind_row_words(pybind11::module_& m);
void bind_rows(pybind11::module_& m);
}  // namespace hive

PYBIND11_MODULE(_native, m) {
  m.doc() = "The native part of hive: slots, boards, status pages, reduction, codecs, optimizers, returns, rows,"
            " priorities, compiled environments.";
  m.attr("SOURCES") = HIVE_SOURCES;
  hive::bind_acting(m);
  hive::bind_losses(m);
  hive::bind_memory(m);
  hive::bind_accumulator(m);
  hive::bind_agent_losses(m);
  hive::bind_codec(m);
  hive::bind_dense(m);
  hive::bind_derived_weights(m);
  hive::bind_compiled(m);
  hive::bind_gather(m);
  hive::bind_optimizers(m);
  hive::bind_philox(m);
  hive::bind_priority_tree(m);
  hive::bind_program(m);
  hive::bind_replay(m);
  hive::bind_return_distributions(m);
  hive::bind_returns(m);
  hive::bind_round(m);
  hive::bind_row_words(m);
  hive::bind_rows(m);
}
