// What slabs, boards and status pages are in Python: each holds a reference to its buffer, so the memory outlives it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "hive/boards.hpp"
#include "hive/slots.hpp"
#include "hive/status.hpp"

namespace hive {

namespace py = pybind11;

struct Memory {
  explicit Memory(const py::buffer& buffer) : info(buffer.request(true)) {
    if (info.ndim != 1 || info.itemsize != 1) throw py::value_error("the memory must be a writable one-dimensional buffer of bytes");
  }
  std::size_t bytes() const { return static_cast<std::size_t>(info.size); }
  py::buffer_info info;
};

struct PySlab : Memory, Slab {
  explicit PySlab(const py::buffer& buffer) : Memory(buffer), Slab(info.ptr, bytes()) {}
};

struct PyBoard : Memory, Board {
  PyBoard(const py::buffer& buffer, std::shared_ptr<PyBoard> shared)
      : Memory(buffer), Board(info.ptr, bytes(), shared.get()), commit(std::move(shared)) {}
  std::shared_ptr<PyBoard> commit;
  void check(int block) const {
    if (block < 0 || block >= static_cast<int>(blocks())) throw py::index_error("no such block");
  }
  void check_reader(int reader) const {
    if (reader < 0 || reader >= static_cast<int>(readers())) throw py::index_error("no such reader");
  }
};

struct PyStatus : Memory {
  explicit PyStatus(const py::buffer& buffer) : Memory(buffer) {
    if (reinterpret_cast<std::uintptr_t>(info.ptr) % 64 != 0 || bytes() % kPageBytes != 0)
      throw py::value_error("status memory is aligned and a whole number of pages");
  }
  int pages() const { return static_cast<int>(bytes() / kPageBytes); }
  Page& at(int index) const {
    if (index < 0 || index >= pages()) throw py::index_error("no such status page");
    return *reinterpret_cast<Page*>(static_cast<std::byte*>(info.ptr) + static_cast<std::size_t>(index) * kPageBytes);
  }
};

// The page of one actor. `table` keeps the memory alive.
struct PyPage {
  std::shared_ptr<PyStatus> table;
  Page* page;
};

}  // namespace hive
