// What a CUDA thread asks of the emulator while it runs. Like cuemu.cc, never compiled with the
// thread sanitizer.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "block.h"

namespace cuemu {

using detail::Barrier;
using detail::Block;
using detail::current;
using detail::Fiber;
using detail::Group;
using detail::kMaxCopies;
using detail::kMaxMasks;
using detail::kMaxShared;
using detail::same_place;
using detail::SharedArray;
using detail::State;
using detail::text_of;
using detail::Warp;

void fail(const std::string& what) { throw detail::error_of(current(), what); }

BarrierResult barrier(const char* op, bool predicate, const Location& where) {
  Fiber& fiber = current();
  Block& block = *fiber.owner;
  Barrier& at = block.barrier;
  if (block.n_live != block.n_threads) {
    fail(std::string(op) + " at " + text_of(where) + " after " +
         std::to_string(block.n_threads - block.n_live) + " threads of the block have ended");
  }
  if (at.arrived > 0 && !same_place(at.where, where)) {
    fail("divergent " + std::string(op) + " at " + text_of(where) + ", others wait at " +
         text_of(at.where));
  }
  const uint32_t generation = at.generation;
  BarrierResult& result = at.results[generation & 1U];
  if (at.arrived == 0) {
    at.where = where;
    result = {true, false, 0};
  }
  result.all &= predicate;
  result.any |= predicate;
  result.count += predicate ? 1 : 0;
#ifdef CUEMU_TSAN
  __tsan_release(&at.edges[generation & 1U]);
#endif
  if (++at.arrived == block.n_live) {
    at.arrived = 0;
    ++at.generation;
  } else {
    detail::wait_for(fiber, State::kAtBarrier, at.generation, op, where);
  }
#ifdef CUEMU_TSAN
  __tsan_acquire(&at.edges[generation & 1U]);
#endif
  return result;
}

Meeting meet(uint32_t mask, const void* value, size_t bytes, const char* op, bool orders_memory,
             const Location& where) {
  Fiber& fiber = current();
  Warp& warp = fiber.owner->warps[static_cast<size_t>(fiber.warp)];
  const auto here = [&] { return std::string(op) + " at " + text_of(where); };
  if ((mask >> fiber.lane & 1U) == 0) fail(here() + ": the mask lacks the calling lane");
  const uint32_t lanes = mask & warp.live;
  Group* group = nullptr;
  for (int i = 0; i < warp.n_groups; ++i) {
    Group& each = warp.groups[i];
    if (each.mask == lanes) group = &each;
    if (each.arrived != 0 && each.mask != lanes && (each.arrived & mask) != 0) {
      fail(here() + ": lanes of its mask wait in " + each.op + " at " + text_of(each.where) +
           " under another mask");
    }
  }
  if (group == nullptr) {
    if (warp.n_groups == kMaxMasks) fail("more than 64 different masks in a warp");
    group = &warp.groups[warp.n_groups++];
    group->mask = lanes;
    group->arrived = 0;
  }
  if (group->arrived == 0) {
    group->op = op;
    group->where = where;
  } else if (group->op != op || !same_place(group->where, where)) {
    fail("divergent warp: " + here() + ", other lanes wait in " + group->op + " at " +
         text_of(group->where));
  }
  const uint32_t generation = group->generation;
  auto* const slots = group->values[generation & 1U];
  auto* const to = reinterpret_cast<volatile char*>(slots[fiber.lane]);
  const auto* const from = static_cast<const volatile char*>(value);
  for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  (void)orders_memory;
#ifdef CUEMU_TSAN
  if (orders_memory) __tsan_release(&group->edges[generation & 1U]);
#endif
  group->arrived |= 1U << fiber.lane;
  if (group->arrived == group->mask) {
    group->arrived = 0;
    ++group->generation;
  } else {
    detail::wait_for(fiber, State::kAtWarp, group->generation, op, where);
  }
#ifdef CUEMU_TSAN
  if (orders_memory) __tsan_acquire(&group->edges[generation & 1U]);
#endif
  return {slots, lanes & warp.live};
}

void* shared_array(const void* tag, size_t offset, size_t bytes) {
  Block& block = *current().owner;
  if (tag == nullptr && offset + bytes > block.dynamic_bytes) {
    fail("takes " + std::to_string(offset + bytes) +
         " bytes of dynamic shared memory, launched with " + std::to_string(block.dynamic_bytes));
  }
  for (int i = 0; i < block.n_shared; ++i) {
    const SharedArray& array = block.shared[i];
    if (array.tag != tag || array.offset != offset) continue;
    if (array.bytes != bytes) fail("a shared array has two sizes");
    return array.data;
  }
  if (block.n_shared == kMaxShared) fail("more than 64 shared arrays");
  if (block.shared_bytes + bytes > kMaxSharedBytes) fail("more than 227 KiB of shared memory");
#ifdef CUEMU_TSAN
  char* const data =
      block.arena +
      (block.shared_bytes + static_cast<size_t>(block.n_shared) * 256 + 127) / 128 * 128;
#else
  void* memory = nullptr;
  if (posix_memalign(&memory, 128, bytes) != 0) throw std::bad_alloc();
  char* const data = static_cast<char*>(memory);
#endif
  for (size_t i = 0; i < bytes; ++i) const_cast<volatile char*>(data)[i] = static_cast<char>(0xFF);
  block.shared_bytes += bytes;
  block.shared[block.n_shared++] = {tag, offset, bytes, data};
  return data;
}

void async_issue(const AsyncCopy& copy) {
  Fiber& fiber = current();
  const auto misaligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (misaligned(copy.to) || misaligned(copy.from)) fail("cp.async: an address isn't aligned");
  if (fiber.n_copies == kMaxCopies) fail("more than 512 cp.async copies under way");
  fiber.copies[static_cast<size_t>((fiber.first_copy + fiber.n_copies++) % kMaxCopies)] = {
      copy, fiber.group};
}

void async_commit() { ++current().group; }

bool async_take(int n_pending, AsyncCopy* copy) {
  Fiber& fiber = current();
  if (fiber.n_copies == 0) return false;
  const Fiber::Copy& first = fiber.copies[static_cast<size_t>(fiber.first_copy)];
  if (first.group >= fiber.group - n_pending) return false;
  *copy = first.copy;
  fiber.first_copy = (fiber.first_copy + 1) % kMaxCopies;
  --fiber.n_copies;
  return true;
}

}  // namespace cuemu
