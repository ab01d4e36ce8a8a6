#include "hive/boards.hpp"

#include <new>
#include <stdexcept>

namespace hive {
namespace {
constexpr std::uint64_t kMagic = 0x68697665626f6172;  // "hiveboar"
constexpr std::uint32_t kMaxWords = 65536;            // maximum of blocks and readers; bounds a corrupt header

// The marks of a block that held `version`: -2, -4, ... TRYING, -3, -5, ... WRITING.
constexpr std::int64_t trying(std::int64_t version) { return -2 * version - 4; }
constexpr std::int64_t writing(std::int64_t version) { return -2 * version - 5; }
constexpr bool is_marked(std::int64_t word) { return word < kNoVersion; }
constexpr bool is_writing(std::int64_t word) { return is_marked(word) && word % 2 != 0; }
constexpr std::int64_t unmarked(std::int64_t word) { return is_marked(word) ? (-word - 4 + (word % 2)) / 2 : word; }
static_assert(trying(kNoVersion) == -2 && writing(kNoVersion) == -3 && trying(7) == -18 && writing(7) == -19);
static_assert(unmarked(-2) == -1 && unmarked(-3) == -1 && unmarked(-18) == 7 && unmarked(-19) == 7 && unmarked(7) == 7);
}  // namespace

std::size_t Board::control_bytes(std::uint32_t blocks, std::uint32_t readers) noexcept {
  return sizeof(BoardHeader) + blocks * sizeof(BlockWord) + readers * sizeof(PinWord);
}

void Board::format(void* memory, std::uint32_t blocks, std::uint32_t readers, std::uint32_t keep) {
  if (blocks > kMaxWords || readers > kMaxWords) throw std::invalid_argument("a board has at most 65536 blocks and readers");
  if (blocks < readers + keep + 1) throw std::invalid_argument("a board needs readers + keep + 1 blocks, or its writer can be locked out");
  auto* header = new (memory) BoardHeader{};
  header->blocks = blocks;
  header->readers = readers;
  header->keep = keep;
  header->latest.store(kNoVersion);
  auto* block = reinterpret_cast<BlockWord*>(header + 1);
  for (std::uint32_t i = 0; i < blocks; ++i) (new (block + i) BlockWord{})->version.store(kNoVersion);
  auto* pin = reinterpret_cast<PinWord*>(block + blocks);
  for (std::uint32_t i = 0; i < readers; ++i) new (pin + i) PinWord{};
  header->magic = kMagic;
}

Board::Board(void* memory, std::size_t bytes, Board* commit)
    : header_(static_cast<BoardHeader*>(memory)), block_(reinterpret_cast<BlockWord*>(header_ + 1)) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 64 != 0) throw std::invalid_argument("a board starts at a multiple of 64 bytes");
  if (bytes < sizeof(BoardHeader) || header_->magic != kMagic) throw std::invalid_argument("this memory holds no board");
  if (header_->blocks > kMaxWords || header_->readers > kMaxWords || bytes < control_bytes(header_->blocks, header_->readers))
    throw std::invalid_argument("this memory is too small for its board");
  pin_ = reinterpret_cast<PinWord*>(block_ + header_->blocks);
  latest_ = commit ? commit->latest_ : &header_->latest;
}

std::int64_t Board::version(int block) const noexcept {
  return unmarked(word(block));
}

bool Board::pinned(int block) const noexcept {
  for (std::uint32_t r = 0; r < readers(); ++r)
    if (pin_[r].block_plus_1.load(std::memory_order_seq_cst) == static_cast<std::uint64_t>(block) + 1) return true;
  return false;
}

int Board::oldest() const noexcept {
  const auto newest = latest();
  int oldest = -1;
  for (int b = 0; b < static_cast<int>(blocks()); ++b) {
    const auto v = word(b);
    const bool kept = v >= 0 && v + static_cast<std::int64_t>(header_->keep) > newest;
    if (!is_marked(v) && !kept && (oldest < 0 || v < word(oldest))) oldest = b;
  }
  return oldest;
}

int Board::begin() noexcept {
  const auto count = static_cast<int>(blocks());
  for (int b = 0; b < count; ++b)
    if (is_writing(word(b))) return b;  // begun and never sealed: the writer still has it
  // Oldest first, so that versions stay readable as long as possible. A block that turns out to be pinned stays marked
  // while the next one is tried, so that no reader can move its pin to it: of readers + 1 marked blocks one is free.
  int found = -1;
  for (int b; found < 0 && (b = oldest()) >= 0;) {
    block_[b].version.store(trying(word(b)), std::memory_order_seq_cst);
    if (!pinned(b)) found = b;
  }
  for (int b = 0; b < count && found < 0; ++b)
    if (is_marked(word(b)) && !pinned(b)) found = b;
  if (found >= 0) block_[found].version.store(writing(version(found)), std::memory_order_seq_cst);
  for (int b = 0; b < count; ++b)  // unmark the other blocks, which were not written
    if (b != found && is_marked(word(b))) block_[b].version.store(version(b), std::memory_order_seq_cst);
  return found;
}

void Board::seal(int block, std::int64_t version) noexcept { block_[block].version.store(version, std::memory_order_seq_cst); }
void Board::publish(std::int64_t version) noexcept { latest_->store(version, std::memory_order_seq_cst); }

int Board::find(std::int64_t wanted) const noexcept {
  for (int b = 0; b < static_cast<int>(blocks()); ++b)
    if (wanted >= 0 && word(b) == wanted) return b;
  return -1;
}

int Board::pin(int reader, std::int64_t wanted) noexcept {
  const auto own = static_cast<int>(pin_[reader].block_plus_1.load(std::memory_order_seq_cst)) - 1;
  if (own >= 0 && wanted >= 0 && version(own) == wanted) return own;  // perhaps TRYING, but the pin stops the writer
  while (true) {
    const auto newest = latest();
    const auto target = wanted < 0 ? newest : wanted;
    if (target < 0 || target > newest) return -1;
    const int block = find(target);
    if (block < 0) {
      if (wanted < 0 && latest() != newest) continue;  // a newer version was published during the search
      return -1;
    }
    pin_[reader].block_plus_1.store(static_cast<std::uint64_t>(block) + 1, std::memory_order_seq_cst);
    if (word(block) == target) return block;
    unpin(reader);
  }
}

bool Board::pins(int reader) const noexcept { return pin_[reader].block_plus_1.load(std::memory_order_seq_cst) != 0; }
void Board::unpin(int reader) noexcept { pin_[reader].block_plus_1.store(0, std::memory_order_seq_cst); }

void Board::recover_writer() noexcept {
  const auto newest = latest();
  for (std::uint32_t b = 0; b < blocks(); ++b) {
    const auto w = word(static_cast<int>(b));
    const bool is_void = is_writing(w) || unmarked(w) > newest;
    block_[b].version.store(is_void ? kNoVersion : unmarked(w), std::memory_order_seq_cst);
  }
}

}  // namespace hive
