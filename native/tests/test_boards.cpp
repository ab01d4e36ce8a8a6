// Boards: what the writer may take, what readers may see, recovery, and a hammer in which readers and the writer die
// at random. The optional argument multiplies the hammer's length.
#include "hive/boards.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using hive::Board;
using hive::kNoVersion;

struct alignas(64) Line { std::uint64_t words[8]; };

struct Memory {
  Memory(std::uint32_t blocks, std::uint32_t readers, std::uint32_t keep)
      : lines(Board::control_bytes(blocks, readers) / 64) {
    Board::format(lines.data(), blocks, readers, keep);
  }
  std::size_t bytes() const { return lines.size() * sizeof(Line); }
  Board board(Board* commit = nullptr) { return {lines.data(), bytes(), commit}; }
  hive::BoardHeader& header() { return *reinterpret_cast<hive::BoardHeader*>(lines.data()); }
  hive::BlockWord& block(int i) { return reinterpret_cast<hive::BlockWord*>(&header() + 1)[i]; }
  hive::PinWord& pin(int reader) { return reinterpret_cast<hive::PinWord*>(&block(0) + header().blocks)[reader]; }
  std::vector<std::int64_t> versions() {
    std::vector<std::int64_t> result;
    for (std::uint32_t i = 0; i < header().blocks; ++i) result.push_back(block(static_cast<int>(i)).version);
    return result;
  }
  std::vector<Line> lines;
};

int write(Board& board, std::int64_t version) {
  const int block = board.begin();
  CHECK(block >= 0);
  board.seal(block, version);
  board.publish(version);
  return block;
}

template <typename Call>
bool refused(Call call) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void a_version_from_begin_to_overwritten() {
  Memory memory(3, 1, 1);
  Board board = memory.board();
  CHECK(board.blocks() == 3 && board.readers() == 1 && board.latest() == kNoVersion);
  CHECK(board.pin(0, -1) == -1 && board.pin(0, 0) == -1 && board.find(kNoVersion) == -1);
  const int block = board.begin();
  CHECK(board.begin() == block);  // begun and not sealed: the same again
  CHECK(board.latest() == kNoVersion && board.pin(0, -1) == -1 && board.find(memory.block(block).version) == -1);
  board.seal(block, 7);
  CHECK(board.latest() == kNoVersion && board.pin(0, -1) == -1 && board.pin(0, 7) == -1 && board.find(7) == block);
  board.publish(7);
  CHECK(board.latest() == 7 && board.pin(0, 8) == -1 && board.pin(0, 6) == -1);
  CHECK(board.pin(0, -1) == block && memory.pin(0).block_plus_1 == static_cast<std::uint64_t>(block) + 1);
  for (std::int64_t v = 8; v < 20; ++v) CHECK(write(board, v) != block);
  CHECK(board.version(block) == 7 && board.pin(0, 7) == block);  // pinned: it stays, however old
  board.unpin(0);
  CHECK(memory.pin(0).block_plus_1 == 0 && write(board, 20) == block);
  CHECK(board.find(7) == -1 && board.pin(0, 7) == -1 && memory.pin(0).block_plus_1 == 0);
  CHECK(board.pin(0, 20) == block && board.pin(0, 19) == board.find(19));
}

void wrong_memory_is_refused() {
  Memory memory(4, 2, 1);
  CHECK(refused([&] { Board::format(memory.lines.data(), 3, 2, 1); }));
  CHECK(refused([&] { Board::format(memory.lines.data(), 65537, 1, 1); }));
  CHECK(refused([&] { Board(memory.lines.data(), memory.bytes() - 64); }));
  CHECK(refused([&] { Board(memory.lines.data(), 8); }));
  CHECK(refused([&] { Board(memory.lines[0].words + 1, memory.bytes()); }));
  CHECK(refused([&] { Board(memory.lines.data() + 1, memory.bytes() - 64); }));
  CHECK(memory.board().begin() >= 0);
}

// Every placement of the pins, on a board whose blocks hold the versions up to `newest`.
void begin_for_every_placement(int readers, int keep, int spare, std::int64_t newest) {
  const int blocks = readers + keep + 1 + spare;
  Memory memory(static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(readers), static_cast<std::uint32_t>(keep));
  Board board = memory.board();
  for (std::int64_t v = 0; v <= newest; ++v) write(board, v);
  const auto before = memory.versions();
  int placements = 1;
  for (int r = 0; r < readers; ++r) placements *= blocks + 1;
  for (int placement = 0; placement < placements; ++placement) {
    std::vector<bool> pinned(static_cast<std::size_t>(blocks) + 1);
    for (int r = 0, rest = placement; r < readers; ++r, rest /= blocks + 1) {
      memory.pin(r).block_plus_1 = static_cast<std::uint64_t>(rest % (blocks + 1));
      pinned[static_cast<std::size_t>(rest % (blocks + 1))] = true;
    }
    std::int64_t oldest = newest + 1;
    for (int b = 0; b < blocks; ++b) {
      const auto v = before[static_cast<std::size_t>(b)];
      if (!pinned[static_cast<std::size_t>(b) + 1] && (v < 0 || v <= newest - keep)) oldest = std::min(oldest, v);
    }
    const int block = board.begin();
    CHECK(block >= 0 && before[static_cast<std::size_t>(block)] == oldest && !pinned[static_cast<std::size_t>(block) + 1]);
    for (int b = 0; b < blocks; ++b) CHECK(b == block || memory.block(b).version == before[static_cast<std::size_t>(b)]);
    CHECK(memory.block(block).version < kNoVersion && board.version(block) == oldest && board.begin() == block);
    memory.block(block).version = oldest;
  }
}

void recovery_of_the_writer() {
  Memory weights(3, 1, 1), moments(3, 0, 1);
  Board first = weights.board(), second = moments.board(&first);
  write(first, 0);
  second.seal(second.begin(), 0);
  CHECK(second.latest() == 0);
  for (int stores = 0; stores <= 5; ++stores) {  // begin, seal, begin, seal, publish: dead before or after each
    const auto last = first.latest(), next = last + 1;
    const int begun = stores > 0 ? first.begin() : -1;
    if (stores > 1) first.seal(begun, next);
    const int begun_too = stores > 2 ? second.begin() : -1;
    if (stores > 3) second.seal(begun_too, next);
    if (stores > 4) first.publish(next);
    for (Board* board : {&first, &second}) CHECK(board->latest() == (stores > 4 ? next : last));
    CHECK(stores > 4 || (first.pin(0, next) == -1 && first.pin(0, -1) == first.find(last)));
    first.unpin(0);
    for (int again = 0; again < 2; ++again) {
      for (Board* board : {&first, &second}) {
        board->recover_writer();
        CHECK(board->find(last) >= 0 && (board->find(next) >= 0) == (stores > 4));
      }
      const auto left = weights.versions();
      CHECK(std::all_of(left.begin(), left.end(), [](std::int64_t v) { return v >= kNoVersion; }));
    }
    const auto after = first.latest() + 1;
    const int block = first.begin(), block_too = second.begin();
    first.seal(block, after);
    second.seal(block_too, after);
    first.publish(after);
    CHECK(first.find(after) == block && second.find(after) == block_too && second.latest() == after);
  }
  // Sealed but never published, with a reader on the last free block: begin() returns -1 and no version is lost.
  Memory memory(3, 1, 1);
  Board board = memory.board();
  for (std::int64_t v = 0; v < 3; ++v) write(board, v);
  CHECK(board.pin(0, 1) >= 0);
  board.seal(board.begin(), 3);
  const auto before = memory.versions();
  CHECK(board.begin() == -1 && memory.versions() == before);
  board.recover_writer();
  CHECK(board.begin() >= 0 && board.find(2) >= 0 && board.find(1) >= 0);
}

// A writer that is killed while it searches for a block has written to none of the blocks that it only marked.
void what_was_only_tried_is_what_it_was_after_the_writers_death() {
  Memory memory(4, 2, 1);
  Board board = memory.board();
  for (std::int64_t v = 0; v < 4; ++v) write(board, v);
  const int held = board.pin(0, 0), free = board.find(1), writing = board.find(2);
  memory.block(held).version = -2 * 0 - 4;  // TRYING
  memory.block(free).version = -2 * 1 - 4;
  memory.block(writing).version = -2 * 2 - 5;  // WRITING
  CHECK(board.version(held) == 0 && board.version(free) == 1 && board.version(writing) == 2);
  CHECK(board.pin(1, 1) == -1 && board.pin(1, 2) == -1 && board.pin(0, 0) == held);  // its own pin is as good as ever
  board.recover_writer();
  CHECK(board.find(0) == held && board.find(1) == free && board.find(2) == -1);
  CHECK(memory.block(writing).version == kNoVersion && board.latest() == 3 && board.pin(1, 1) == free);
}

// The writer pins a version in a reader's name and tells it so; the reader asks for it while the writer goes on, and looks
// at that very block again and again. The goods are plain memory, as in the hammer.
void a_version_that_is_held_is_there(int turns) {
  constexpr int kOthers = 3, kBlocksHere = kOthers + 1 + 1 + 1;
  Memory memory(kBlocksHere, kOthers + 1, 1);
  Board board = memory.board();
  std::int64_t goods_of[kBlocksHere]{};
  std::int64_t version = -1;
  const auto turn = [&] {
    const int block = board.begin();
    CHECK(block >= 0);
    goods_of[block] = ++version;
    board.seal(block, version);
    board.publish(version);
  };
  turn();
  std::atomic<std::int64_t> due{-1}, done{-1};
  std::thread reader([&] {
    Board mine = memory.board();
    for (std::int64_t last = -1; last != -2;) {
      const auto wanted = due.load();
      if (wanted == last) { std::this_thread::yield(); continue; }
      if ((last = wanted) == -2) break;
      const int block = mine.pin(kOthers, wanted);
      CHECK(block >= 0 && mine.version(block) == wanted && goods_of[block] == wanted);
      mine.unpin(kOthers);
      done.store(wanted);
    }
  });
  for (int n = 0; n < turns; ++n) {
    CHECK(!board.pins(kOthers) && board.pin(kOthers, version) >= 0);
    const auto held = version;
    for (int i = 0; i < kBlocksHere + 2; ++i) turn();
    for (due.store(held); done.load() != held;) turn();
  }
  due.store(-2);
  reader.join();
}

void recovery_of_a_reader() {
  Memory memory(3, 1, 1);
  Board board = memory.board();
  for (std::int64_t v = 0; v < 2; ++v) write(board, v);
  const int block = board.pin(0, 0);
  write(board, 2);
  CHECK(board.version(block) == 0);
  board.recover_reader(0);
  board.recover_reader(0);
  CHECK(memory.pin(0).block_plus_1 == 0 && write(board, 3) == block);
}

// The hammer. Goods are plain memory: ThreadSanitizer proves that versions and pins alone order every access.
constexpr int kReaders = 4, kInOrder = 2, kKeep = 4, kBlocks = kReaders + kKeep + 1, kGoods = 48;

std::uint64_t good(std::int64_t version, int i) {
  return static_cast<std::uint64_t>(version) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(i);
}

// A thread with nothing to do sleeps, so that the others get the cores also on a loaded machine.
void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

struct Hammer {
  explicit Hammer(std::int64_t last_version) : last(last_version) {}

  void fill(std::uint64_t* block, std::int64_t version) {
    for (int i = 0; i < kGoods; ++i) block[i] = good(version, i);
  }

  // Writes both boards, publishes once; or dies on the way, and its successor goes on from the last publication.
  void write_all() {
    std::minstd_rand random(1);
    Board board = memory.board(), moments = private_memory.board(&board);
    for (std::int64_t v = 0; v <= last;) {
      const auto slowest = std::min(wanted[0].load(), wanted[1].load());
      if (v > slowest + kKeep - 1) {  // admission: readers in order need no more than the `keep` newest
        rest();
        continue;
      }
      const int block = board.begin(), private_block = moments.begin();
      CHECK(block >= 0 && private_block >= 0);
      CHECK(memory.block(block).version < kNoVersion && board.begin() == block);
      const auto fate = random() % 32;
      if (fate > 1) fill(goods[block], v);
      else goods[block][random() % kGoods] = fate;  // torn
      fill(private_goods[private_block], v);
      if (fate > 1) board.seal(block, v);
      if (fate > 2) moments.seal(private_block, v);
      if (fate > 3) {
        board.publish(v++);
        continue;
      }
      board.recover_writer();
      moments.recover_writer();
      CHECK(board.latest() == v - 1 && (v == 0 || board.find(v - 1) >= 0) && board.find(v) == -1);
      const int kept = moments.find(v - 1);
      CHECK(v == 0 || kept >= 0);
      for (int i = 0; v > 0 && i < kGoods; ++i)
        CHECK(private_goods[kept][i] == good(v - 1, i) && goods[board.find(v - 1)][i] == good(v - 1, i));
    }
  }

  // Returns whether the reader lived to unpin.
  bool look(Board& board, int reader, int block, std::int64_t version, unsigned long fate) {
    CHECK(board.version(block) == version);
    for (int i = 0; i < kGoods; ++i) CHECK(goods[block][i] == good(version, i));
    if (fate % 32) {
      if (fate % 32 > 24) rest();
      for (int i = 0; i < kGoods; ++i) CHECK(goods[block][i] == good(version, i));
      board.unpin(reader);
      return true;
    }
    dead[reader].store(true, std::memory_order_release);
    while (dead[reader].load(std::memory_order_acquire)) rest();
    return false;
  }

  // Needs every version, one after the other: none may be gone.
  void read_in_order(int reader) {
    std::minstd_rand random(static_cast<unsigned>(reader) + 2);
    Board board = memory.board();
    while (wanted[reader] <= last) {
      const std::int64_t version = wanted[reader];
      if (board.latest() < version) {
        rest();
        continue;
      }
      const int block = board.pin(reader, version);
      CHECK(block >= 0);
      if (look(board, reader, block, version, random())) ++wanted[reader];
    }
  }

  // Takes the latest, or some version that may be gone.
  void read_any(int reader) {
    std::minstd_rand random(static_cast<unsigned>(reader) + 2);
    Board board = memory.board();
    for (std::int64_t seen = -1; seen < last;) {
      const auto latest = board.latest();
      const auto version = random() % 2 ? -1 : latest - static_cast<std::int64_t>(random() % kBlocks);
      const int block = board.pin(reader, version);
      CHECK(block >= 0 || version >= 0 || latest < 0);
      if (block >= 0) {
        const auto got = board.version(block);
        CHECK(version < 0 ? got >= seen && got >= latest : got == version);
        if (version < 0) seen = got;
        look(board, reader, block, got, random());
      }
      if (seen == latest) rest();  // nothing new
    }
  }

  void run() {
    std::vector<std::thread> readers;
    for (int r = 0; r < kReaders; ++r)
      readers.emplace_back([this, r] { r < kInOrder ? read_in_order(r) : read_any(r); });
    std::thread writer([this] { write_all(); });
    std::thread supervisor([this] {
      Board board = memory.board();
      while (!over) {
        for (int r = 0; r < kReaders; ++r) {
          if (!dead[r].load(std::memory_order_acquire)) continue;
          board.recover_reader(r);
          dead[r].store(false, std::memory_order_release);
        }
        rest();
      }
    });
    for (auto& reader : readers) reader.join();
    writer.join();
    over = true;
    supervisor.join();
    CHECK(memory.board().latest() == last);
    for (int r = 0; r < kReaders; ++r) CHECK(memory.pin(r).block_plus_1 == 0);
  }

  std::int64_t last;
  Memory memory{kBlocks, kReaders, kKeep}, private_memory{2, 0, 1};
  std::uint64_t goods[kBlocks][kGoods]{}, private_goods[2][kGoods]{};
  std::atomic<std::int64_t> wanted[kInOrder]{};
  std::atomic<bool> dead[kReaders]{}, over{false};
};

// Readers that change over between old versions all the time, while the writer takes a block, writes other goods and
// then the same as before. With readers + keep + 1 blocks there always is one, whatever the pins do meanwhile.
void the_writer_is_never_locked_out(int turns) {
  constexpr int kFew = 2, kWords = 8;
  Memory memory(kFew + 1 + 1, kFew, 1);
  Board board = memory.board();
  std::uint64_t goods_of[kFew + 2][kWords]{};
  const auto fill = [&](int block, std::int64_t version) {
    for (int i = 0; i < kWords; ++i) goods_of[block][i] = good(version, i);
  };
  for (std::int64_t v = 0; v < kFew + 2; ++v) fill(write(board, v), v);
  const auto before = memory.versions();
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int r = 0; r < kFew; ++r) {
    readers.emplace_back([&, r] {
      Board mine = memory.board();
      for (std::int64_t v = 0; !over.load(std::memory_order_relaxed); v = (v + 1) % (kFew + 2)) {
        const int block = mine.pin(r, v);
        CHECK(block < 0 || mine.version(block) == v);
        for (int i = 0; block >= 0 && i < kWords; ++i) CHECK(goods_of[block][i] == good(v, i));
        mine.unpin(r);
      }
    });
  }
  for (int turn = 0; turn < turns; ++turn) {
    const int block = board.begin();
    CHECK(block >= 0);
    const auto version = before[static_cast<std::size_t>(block)];
    CHECK(version < kFew + 1);  // the newest is kept
    fill(block, -turn);
    fill(block, version);
    board.seal(block, version);
    CHECK(memory.versions() == before);
  }
  over = true;
  for (auto& reader : readers) reader.join();
}

// A writer that waits for nobody and four readers of the latest: what each reads is all of one version, no older than the
// one before, and each really reads beside the writer. `scripts/sanitize 20` makes it ten million publications.
void four_readers_never_read_a_torn_version(std::int64_t last) {
  constexpr int kFour = 4, kWords = 16;
  Memory memory(kFour + 1 + 1, kFour, 1);
  std::uint64_t goods_of[kFour + 2][kWords]{};
  const auto publish = [&](Board& board, std::int64_t version) {
    const int block = board.begin();
    CHECK(block >= 0);
    for (int i = 0; i < kWords; ++i) goods_of[block][i] = good(version, i);
    board.seal(block, version);
    board.publish(version);
  };
  Board board = memory.board();
  publish(board, 0);
  std::vector<std::thread> readers;
  std::atomic<int> reading{0};
  std::atomic<std::int64_t> newest{std::numeric_limits<std::int64_t>::max()};  // until the writer has ended
  for (int r = 0; r < kFour; ++r) {
    readers.emplace_back([&, r] {
      Board mine = memory.board();
      std::int64_t versions = 0;
      for (std::int64_t seen = -1; seen < newest;) {
        const int block = mine.pin(r, -1);
        CHECK(block >= 0);
        const std::int64_t version = mine.version(block);
        CHECK(version >= seen);
        for (int i = 0; i < kWords; ++i) CHECK(goods_of[block][i] == good(version, i));
        mine.unpin(r);
        if (version > seen && ++versions == 2) ++reading;
        seen = version;
      }
    });
  }
  std::int64_t version = 1;
  // On a busy machine a reader may begin late: the writer goes on until all of them read beside it.
  for (; version <= last || reading < kFour; ++version) publish(board, version);
  newest = version - 1;
  for (auto& reader : readers) reader.join();
}

// A writer that waits for nobody: the latest is there all the same, whichever it is by now.
void the_latest_is_always_there(std::int64_t last) {
  Memory memory(3, 1, 1);
  Board board = memory.board();
  write(board, 0);
  std::thread reader([&] {
    Board mine = memory.board();
    for (std::int64_t seen = 0; seen < last;) {
      const int block = mine.pin(0, -1);
      CHECK(block >= 0 && mine.version(block) >= seen);
      seen = mine.version(block);
      mine.unpin(0);
    }
  });
  for (std::int64_t v = 1; v <= last; ++v) write(board, v);
  reader.join();
}

}  // namespace

int main(int argc, char** argv) {
  const double scale = argc > 1 ? std::atof(argv[1]) : 1;
  a_version_from_begin_to_overwritten();
  wrong_memory_is_refused();
  for (int readers = 0; readers <= 3; ++readers)
    for (int keep = 0; keep <= 3; ++keep)
      for (int spare = 0; spare <= 1; ++spare)
        for (const std::int64_t newest : {-1, 0, 1, 4, 20}) begin_for_every_placement(readers, keep, spare, newest);
  recovery_of_the_writer();
  recovery_of_a_reader();
  what_was_only_tried_is_what_it_was_after_the_writers_death();
  a_version_that_is_held_is_there(2000 * scale);
  Hammer(5000 * scale).run();
  the_writer_is_never_locked_out(50000 * scale);
  the_latest_is_always_there(200000 * scale);
  four_readers_never_read_a_torn_version(500000 * scale);
}
