// A board: the latest value, versioned, in N blocks of shared memory. One writer, many readers, nobody waits.
//
//   writer   begin(): a block that no reader has pinned and that is not among the `keep` newest versions; it is
//            marked TRYING, and WRITING once it is known to be free -> write it in place -> seal(block, version)
//            -> publish(version)
//   reader   pin(version): the reader's own pin word names the block, then the block's version is checked again
//            -> read in place -> unpin()
//
// Why it is never torn. The writer marks a block TRYING and then looks at the pins; a reader pins and then looks at
// the mark. Both do it sequentially consistent, so at least one of them sees the other: the writer takes another
// block, or the reader tries again. (Hazard pointers, Michael 2004, with one hazard per reader.) A reader that has the
// block pinned already needs no look: nobody can have taken it. Nothing has been written to a block that is only
// TRYING, so after the writer's death it is what it was; one that is WRITING holds nothing.
//
// Why the writer always finds a block: readers pin at most one block each, `keep` blocks are held back, so
// N >= readers + keep + 1 leaves one. `keep` is what deterministic readers still need: with a lag of k versions,
// admission never lets the newest version run more than k ahead of the one a reader asks for, so the k + 1 newest
// suffice and no acknowledgement is sent.
//
// Two boards that change together share one `latest` word: seal both, publish once. What was sealed and not
// published does not exist; `recover` (after the writer's death) says so.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hive {

constexpr std::int64_t kNoVersion = -1;  // nothing written yet; what is below it is a mark, TRYING or WRITING

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
  // `commit` is the board whose `latest` word this one shares; null for its own.
  Board(void* memory, std::size_t bytes, Board* commit = nullptr);

  std::uint32_t blocks() const noexcept { return header_->blocks; }
  std::uint32_t readers() const noexcept { return header_->readers; }
  std::int64_t latest() const noexcept { return latest_->load(std::memory_order_seq_cst); }
  // What the block holds; while the writer has it, or tries to get it, what it held before. So it is constant for a
  // reader that has it pinned.
  std::int64_t version(int block) const noexcept;

  // A block to write. -1 only when versions were sealed and never published: those are kept as well.
  int begin() noexcept;
  void seal(int block, std::int64_t version) noexcept;
  void publish(std::int64_t version) noexcept;
  // The block that holds `version`, or -1. For the writer, which needs no pin to read its own blocks.
  int find(std::int64_t version) const noexcept;

  // The block that holds `version` (the latest when negative), pinned; -1 when it is not there. A version that this
  // reader, or the writer in its name, has pinned is there.
  int pin(int reader, std::int64_t version) noexcept;
  void unpin(int reader) noexcept;
  bool pins(int reader) const noexcept;  // whether this reader holds a block

  // Supervisor, after a confirmed death.
  void recover_reader(int reader) noexcept { unpin(reader); }
  void recover_writer() noexcept;

 private:
  std::int64_t word(int block) const noexcept { return block_[block].version.load(std::memory_order_seq_cst); }
  int oldest() const noexcept;  // of the blocks that are neither kept nor marked; or -1
  bool pinned(int block) const noexcept;

  BoardHeader* header_;
  BlockWord* block_;
  PinWord* pin_;
  std::atomic<std::int64_t>* latest_;
};

}  // namespace hive
