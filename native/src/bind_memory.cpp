// Python bindings of slabs, boards and status pages. Each holds a reference to its buffer, so the memory outlives it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "bound_memory.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

py::dict snapshot(const Page& page) {
  const auto now = monotonic_ns();
  const auto current = page.phase.load();
  const auto since = page.since_ns.load();
  py::dict phases, counters;
  for (int i = 0; i < kPhases && page.phase_name[i][0]; ++i) {
    auto spent = page.phase_ns[i].load();
    if (static_cast<std::uint32_t>(i) == current && since != 0 && now > since) spent += now - since;
    phases[page.phase_name[i]] = py::make_tuple(static_cast<int>(page.kind[i]), spent);
  }
  for (int i = 0; i < kCounters && page.counter_name[i][0]; ++i) counters[page.counter_name[i]] = page.counters[i].load();
  return py::dict("name"_a = page.name, "pid"_a = page.pid.load(), "incarnation"_a = page.incarnation.load(),
                  "state"_a = page.state.load(), "phase"_a = current < kPhases ? page.phase_name[current] : "",
                  "since_ns"_a = since, "pulse_ns"_a = page.pulse_ns.load(), "now_ns"_a = now, "progress"_a = page.progress.load(),
                  "version"_a = page.version.load(), "lag"_a = page.lag.load(), "phases"_a = phases, "counters"_a = counters);
}

Owner owner(std::uint32_t actor, std::uint32_t incarnation) {
  if (actor >= 1024) throw py::value_error("a slot word has room for actors 0 to 1023");
  return {actor, incarnation};
}
int checked_reason(int reason) {
  if (reason < 0 || reason >= kReasons) throw py::value_error("no such reason: " + std::to_string(reason));
  return reason;
}

}  // namespace

void bind_memory(py::module_& m) {
  py::class_<PySlab>(m, "Slab", "The slot words of a slab. See include/hive/slots.hpp.")
      .def(py::init<const py::buffer&>(), "memory"_a)
      .def_static("control_bytes", &Slab::control_bytes, "slots"_a)
      .def_static("format", [](const py::buffer& b, std::uint32_t slots, std::uint64_t first) {
        const Memory memory(b);
        if (memory.bytes() < Slab::control_bytes(slots)) throw py::value_error("this memory is too small for such a slab");
        Slab::format(memory.info.ptr, slots, first);
      }, "memory"_a, "slots"_a, "first"_a = 0)
      .def_property_readonly("slots", &Slab::slots)
      .def_property_readonly("produced", &Slab::produced)
      .def("reserve", [](PySlab& s, std::uint32_t a, std::uint32_t i, int only) { return s.reserve(owner(a, i), only); }, "actor"_a, "incarnation"_a, "only"_a = -1)
      .def("commit", [](PySlab& s, int slot, std::uint32_t a, std::uint32_t i) { return s.commit(slot, owner(a, i)); }, "slot"_a, "actor"_a, "incarnation"_a)
      .def("abandon", [](PySlab& s, int slot, std::uint32_t a, std::uint32_t i) { s.abandon(slot, owner(a, i)); }, "slot"_a, "actor"_a, "incarnation"_a)
      .def("claim", [](PySlab& s, std::uint32_t a, std::uint32_t i, std::int64_t q) { return s.claim(owner(a, i), q); }, "actor"_a, "incarnation"_a, "sequence"_a = -1)
      .def("first_left", &Slab::first_left)
      .def("retire", [](PySlab& s, int slot, std::uint32_t a, std::uint32_t i, int reason) { s.retire(slot, owner(a, i), reason); }, "slot"_a, "actor"_a, "incarnation"_a, "reason"_a = 0)
      .def("recover", [](PySlab& s, std::uint32_t a, std::uint32_t i, bool reoffer, int reason) { return s.recover(owner(a, i), reoffer, checked_reason(reason)); }, "actor"_a, "incarnation"_a, "reoffer"_a, "reason"_a)
      .def("withdraw", [](PySlab& s, int reason, std::uint64_t sequence) { return s.withdraw(checked_reason(reason), sequence); }, "reason"_a, "sequence"_a)
      .def("drain", [](PySlab& s, int reason) { return s.drain(checked_reason(reason)); }, "reason"_a)
      .def("counts", [](const PySlab& s) {
        const auto c = s.counts();
        return py::make_tuple(c.produced, std::vector<std::uint64_t>(c.retired.begin(), c.retired.end()), c.in_flight);
      }, "(produced, [retired by reason], in_flight)")
      .def("sequence", [](const PySlab& s, int slot) {
        if (slot < 0 || slot >= static_cast<int>(s.slots())) throw py::index_error("no such slot");
        return s.sequence(slot);
      }, "slot"_a)
      .def("maker", [](const PySlab& s, int slot) {
        if (slot < 0 || slot >= static_cast<int>(s.slots())) throw py::index_error("no such slot");
        return s.maker(slot);
      }, "slot"_a)
      .def("state", [](const PySlab& s, int slot) {
        if (slot < 0 || slot >= static_cast<int>(s.slots())) throw py::index_error("no such slot");
        return py::make_tuple(static_cast<int>(s.state(slot)), s.owner(slot).actor, s.owner(slot).incarnation, s.sequence(slot));
      }, "slot"_a, "(state, actor, incarnation, sequence)");

  py::class_<PyBoard, std::shared_ptr<PyBoard>>(m, "Board", "The versions of a board. See include/hive/boards.hpp.")
      .def(py::init<const py::buffer&, std::shared_ptr<PyBoard>>(), "memory"_a, "commit"_a = std::shared_ptr<PyBoard>())
      .def_static("control_bytes", &Board::control_bytes, "blocks"_a, "readers"_a)
      .def_static("format", [](const py::buffer& b, std::uint32_t blocks, std::uint32_t readers, std::uint32_t keep) {
        const Memory memory(b);
        if (memory.bytes() < Board::control_bytes(blocks, readers)) throw py::value_error("this memory is too small for such a board");
        Board::format(memory.info.ptr, blocks, readers, keep);
      }, "memory"_a, "blocks"_a, "readers"_a, "keep"_a)
      .def_property_readonly("blocks", &Board::blocks)
      .def_property_readonly("readers", &Board::readers)
      .def_property_readonly("latest", &Board::latest)
      .def("version", [](const PyBoard& b, int block) { b.check(block); return b.version(block); }, "block"_a)
      .def("begin", &Board::begin)
      .def("seal", [](PyBoard& b, int block, std::int64_t v) { b.check(block); b.seal(block, v); }, "block"_a, "version"_a)
      .def("publish", [](PyBoard& b, std::int64_t v) { b.publish(v); }, "version"_a)
      .def("find", [](const PyBoard& b, std::int64_t v) { return b.find(v); }, "version"_a)
      .def("pin", [](PyBoard& b, int reader, std::int64_t v) { b.check_reader(reader); return b.pin(reader, v); }, "reader"_a, "version"_a = -1)
      .def("pinned", [](PyBoard& b, int reader) { b.check_reader(reader); return b.pins(reader); }, "reader"_a)
      .def("unpin", [](PyBoard& b, int reader) { b.check_reader(reader); b.unpin(reader); }, "reader"_a)
      .def("recover_writer", [](PyBoard& b) { b.recover_writer(); });

  py::class_<PyStatus, std::shared_ptr<PyStatus>>(m, "Status", "All status pages of a run. See include/hive/status.hpp.")
      .def(py::init<const py::buffer&>(), "memory"_a)
      .def_property_readonly("pages", &PyStatus::pages)
      .def("page", [](const std::shared_ptr<PyStatus>& s, int i) { return PyPage{s, &s->at(i)}; }, "index"_a)
      .def("notify", [](PyStatus& s, int i) { s.at(i).notifier.notify(); }, "index"_a)
      .def("mailed", [](PyStatus& s, int i) {
        s.at(i).mail.fetch_add(1, std::memory_order_seq_cst);
        s.at(i).notifier.notify();
      }, "index"_a)
      .def("notify_all", [](PyStatus& s, const py::sequence& actors) {
        py::list waiting;
        for (const py::handle actor : actors)
          if (notify_all(s.at(actor.cast<int>()))) waiting.append(actor);
        return waiting;
      }, "indices"_a)
      .def("notify_one", [](PyStatus& s, const py::sequence& actors, std::uint32_t channel, std::size_t first) {
        py::list waiting;
        notify_one(actors.size(), first, channel, [&](std::size_t i) -> Page& { return s.at(py::object(actors[i]).cast<int>()); },
                  [&](std::size_t i) { waiting.append(actors[i]); });
        return waiting;
      }, "indices"_a, "channel"_a, "first"_a)
      .def("snapshot", [](PyStatus& s, int i) { return snapshot(s.at(i)); }, "index"_a);

  py::class_<PyPage>(m, "StatusPage", "The page of one actor, which alone writes it.")
      .def(py::init([](const std::shared_ptr<PyStatus>& s, int i) { return PyPage{s, &s->at(i)}; }), "pages"_a, "index"_a)
      .def("open", [](PyPage& p, const std::string& name, std::uint32_t pid, std::uint32_t incarnation) {
        if (name.size() >= sizeof(p.page->name)) throw py::value_error("the name `" + name + "` is longer than 47 bytes");
        std::copy_n(name.c_str(), name.size() + 1, p.page->name);
        p.page->pid = pid;
        p.page->incarnation = incarnation;
        p.page->since_ns = 0;
        p.page->pulse_ns = 0;
        p.page->waiting = 0;
        p.page->wake_request = 0;
        complete(*p.page);  // finishes an entry within which an earlier incarnation was killed
        p.page->magic = 1;
      }, "name"_a, "pid"_a, "incarnation"_a)
      .def("phase", [](PyPage& p, const std::string& name, int kind) {
        if (kind < 0 || kind > 3) throw py::value_error("a phase is busy (0), wait_in (1), wait_out (2) or runtime (3)");
        return name_phase(*p.page, name, static_cast<Kind>(kind));
      }, "name"_a, "kind"_a)
      .def("counter", [](PyPage& p, const std::string& name) { return name_counter(*p.page, name); }, "name"_a)
      .def("enter", [](PyPage& p, int phase) {
        if (phase < 0 || phase >= kPhases) throw py::index_error("no such phase");
        enter(*p.page, phase);
      }, "phase"_a)
      .def("pulse", [](PyPage& p) { p.page->pulse_ns.store(monotonic_ns(), std::memory_order_relaxed); })
      .def("set", [](PyPage& p, int i, double value) {
        if (i < 0 || i >= kCounters) throw py::index_error("no such counter");
        p.page->counters[i].store(value, std::memory_order_relaxed);
      }, "counter"_a, "value"_a)
      .def("add", [](PyPage& p, int i, double delta) {
        if (i < 0 || i >= kCounters) throw py::index_error("no such counter");
        auto& c = p.page->counters[i];
        c.store(c.load(std::memory_order_relaxed) + delta, std::memory_order_relaxed);
      }, "counter"_a, "delta"_a)
      .def("add_both", [](PyPage& p, int i, double delta, int j, double delta_j) {
        if (i < 0 || i >= kCounters || j < 0 || j >= kCounters || i == j) throw py::index_error("no such counters, or only one");
        add_both(*p.page, i, delta, j, delta_j);
      }, "first"_a, "by"_a, "second"_a, "by_second"_a)
      .def("complete", [](PyPage& p) { complete(*p.page); })
      .def("get", [](PyPage& p, int i) {
        if (i < 0 || i >= kCounters) throw py::index_error("no such counter");
        return p.page->counters[i].load();
      }, "counter"_a)
      .def_property("state", [](PyPage& p) { return p.page->state.load(); }, [](PyPage& p, std::uint32_t s) { p.page->state = s; })
      .def_property("version", [](PyPage& p) { return p.page->version.load(); }, [](PyPage& p, std::int64_t v) { p.page->version = v; })
      .def_property("lag", [](PyPage& p) { return p.page->lag.load(); }, [](PyPage& p, std::int64_t v) { p.page->lag = v; })
      .def_property_readonly("mail", [](PyPage& p) { return p.page->mail.load(); })
      .def_property_readonly("progress", [](PyPage& p) { return p.page->progress.load(); })
      .def("seen", [](PyPage& p) { return p.page->notifier.seen(); })
      .def("notify", [](PyPage& p) { p.page->notifier.notify(); })
      .def("set_waiting", [](PyPage& p) { set_waiting(*p.page); })
      .def("request_wake", [](PyPage& p, std::uint32_t channel, bool every) {
        if ((channel == 0 && !every) || channel >= kEvery) throw py::value_error("channel numbers start at 1");
        request_wake(*p.page, every ? channel | kEvery : channel);
      }, "channel"_a, "every"_a = false)
      .def("withdraw_wake", [](PyPage& p) { return withdraw_wake(*p.page); })
      .def("wait", [](PyPage& p, std::uint32_t seen, std::uint64_t limit_ns) { return p.page->notifier.wait(seen, limit_ns); },
           "seen"_a, "limit_ns"_a, py::call_guard<py::gil_scoped_release>());
}

}  // namespace hive
