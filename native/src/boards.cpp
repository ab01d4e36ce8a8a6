#include "hive/boards.hpp"

#include <new>
#include <stdexcept>

namespace hive {
namespace {
constexpr std::uint64_t kMagic = 0x68697665626f6172;  // "hiveboar"
constexpr std::uint32_t kMaxWords = 65536;            // bounds what a torn header can ask for
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

bool Board::pinned(int block) const noexcept {
  for (std::uint32_t r = 0; r < readers(); ++r)
    if (pin_[r].block_plus_1.load(std::memory_order_seq_cst) == static_cast<std::uint64_t>(block) + 1) return true;
  return false;
}

int Board::begin() noexcept {
  // Oldest first: a version stays readable as long as there is room.
  const auto newest = latest();
  std::int64_t tried = -3;  // below every version that exists; blocks are tried in ascending order of version
  for (std::uint32_t round = 0; round < blocks(); ++round) {
    int best = -1;
    std::int64_t best_version = 0;
    for (int b = 0; b < static_cast<int>(blocks()); ++b) {
      const auto v = version(b);
      if (v == kWriting) return b;  // begun and never sealed: still the writer's
      const bool kept = v >= 0 && v + static_cast<std::int64_t>(header_->keep) > newest;
      if (kept || v < tried || (best >= 0 && v >= best_version) || pinned(b)) continue;
      best = b, best_version = v;
    }
    if (best < 0) return -1;
    block_[best].version.store(kWriting, std::memory_order_seq_cst);
    if (!pinned(best)) return best;
    block_[best].version.store(best_version, std::memory_order_seq_cst);  // a reader was quicker: its data is untouched
    tried = best_version;
  }
  return -1;
}

void Board::seal(int block, std::int64_t version) noexcept { block_[block].version.store(version, std::memory_order_seq_cst); }
void Board::publish(std::int64_t version) noexcept { latest_->store(version, std::memory_order_seq_cst); }

int Board::find(std::int64_t wanted) const noexcept {
  for (int b = 0; b < static_cast<int>(blocks()); ++b)
    if (version(b) == wanted) return b;
  return -1;
}

int Board::pin(int reader, std::int64_t wanted) noexcept {
  while (true) {
    const auto newest = latest();
    const auto target = wanted < 0 ? newest : wanted;
    if (target < 0 || target > newest) return -1;
    const int block = find(target);
    if (block < 0) {
      if (wanted < 0 && latest() != newest) continue;  // it moved on while we looked
      return -1;
    }
    pin_[reader].block_plus_1.store(static_cast<std::uint64_t>(block) + 1, std::memory_order_seq_cst);
    if (version(block) == target) return block;
    unpin(reader);
  }
}

void Board::unpin(int reader) noexcept { pin_[reader].block_plus_1.store(0, std::memory_order_seq_cst); }

void Board::recover_writer() noexcept {
  const auto newest = latest();
  for (std::uint32_t b = 0; b < blocks(); ++b) {
    const auto v = version(static_cast<int>(b));
    if (v == kWriting || v > newest) block_[b].version.store(kNoVersion, std::memory_order_seq_cst);
  }
}

}  // namespace hive
