// A board: versioned values in N blocks of shared memory. One writer and many readers, none of which waits for another.
//
//   writer   begin(): a block that no reader has pinned and that is not among the `keep` newest versions; it is
//            marked TRYING, and WRITING once it is known to be free -> write it in place -> seal(block, version)
//            -> publish(version)
//   reader   pin(version): the reader's own pin word names the block, then the block's version is checked again
//            -> read in place -> unpin()
//
// Why a version is never torn. The writer marks a block TRYING and then checks the pins; a reader pins and then checks
// the mark. Both operations are sequentially consistent, so at least one side sees the other: the writer takes another
// block, or the reader tries again. (Hazard pointers, Michael 2004, with one hazard per reader.) A reader that has
// already pinned the block need not check, because the writer cannot have taken it. A block that is only TRYING has not
// been written, so it keeps its version if the writer is killed; a block that is WRITING then holds no version.
//
// Why the writer always finds a block. Each reader pins at most one block and `keep` blocks are reserved, so N >=
// readers + keep + 1 leaves one. `keep` covers the versions that synchronous and pipelined readers may still request:
// with a lag of k versions the writer is at most k versions ahead of every request, so the k + 1 newest suffice and
// readers send no acknowledgements.
//
// Boards that change together share one `latest` word: seal all, publish once. A version that was sealed but not
// published does not exist; `recover_writer` removes it after the writer was killed.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hive {

constexpr std::int64_t kNoVersion = -1;  // not written yet; smaller numbers are the marks TRYING and WRITING

struct alignas(64) BoardHeader {
  std::uint64_t magic;
  std::uint32_t blocks, readers, keep, reserved;
  std::atomic<std::int64_t> latest;
};
struct alignas(64) BlockWord { std::atomic<std::int64_t> version; };
struct alignas(64) PinWord { std::atomic<std::uint64_t> block_plus_1; };

class Board {
 public:
  static std::size_t control_bytes(std::uint32_t blocks, std::uint32_t readers) noexcept;
  static void format(void* memory, std::uint32_t blocks, std::uint32_t readers, std::uint32_t keep);
  // `commit` is the board whose `latest` word this one shares; null: it has a separate word.
  Board(void* memory, std::size_t bytes, Board* commit = nullptr);

  std::uint32_t blocks() const noexcept { return header_->blocks; }
  std::uint32_t readers() const noexcept { return header_->readers; }
  std::int64_t latest() const noexcept { return latest_->load(std::memory_order_seq_cst); }
  // The version in the block; for a block marked TRYING or WRITING, the version before. It does not change while a
  // reader has the block pinned.
  std::int64_t version(int block) const noexcept;

  // Returns a block to write. -1 only if sealed versions were never published, because those are kept as well.
  int begin() noexcept;
  void seal(int block, std::int64_t version) noexcept;
  void publish(std::int64_t version) noexcept;
  // Returns the block that holds `version`, or -1. For the writer, which needs no pin to read its blocks.
  int find(std::int64_t version) const noexcept;

  // Pins the block that holds `version` (the latest if negative) and returns it; -1 if no block does. Never fails for a
  // version that this reader, or the writer in its name, has already pinned.
  int pin(int reader, std::int64_t version) noexcept;
  void unpin(int reader) noexcept;
  bool pins(int reader) const noexcept;  // whether this reader holds a block

  // For the supervisor, after the writer's confirmed exit: removes blocks that were begun, and unpublished versions.
  void recover_reader(int reader) noexcept { unpin(reader); }
  void recover_writer() noexcept;

 private:
  std::int64_t word(int block) const noexcept { return block_[block].version.load(std::memory_order_seq_cst); }
  int oldest() const noexcept;  // the oldest block that is neither kept nor marked, or -1
  bool pinned(int block) const noexcept;

  BoardHeader* header_;
  BlockWord* block_;
  PinWord* pin_;
  std::atomic<std::int64_t>* latest_;
};

}  // namespace hive
