// Ids that cannot be mixed up: each is an integer of its own type and converts to no other.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace pagoda::base {

template <typename Tag, typename Int>
class StrongId {
 public:
  constexpr StrongId() = default;
  explicit constexpr StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Int value_ = 0;
};

}  // namespace pagoda::base

namespace pagoda {

// A KV block: its index in the pool.
using BlockId = base::StrongId<struct BlockTag, int32_t>;
// The layers of one kind that share block tables.
using GroupId = base::StrongId<struct GroupTag, int16_t>;
// The run of one request inside the engine.
using SeqId = base::StrongId<struct SeqTag, uint64_t>;
// A row of the sampler's state.
using SlotId = base::StrongId<struct SlotTag, int32_t>;
// What a client sent.
using RequestId = base::StrongId<struct RequestTag, uint64_t>;
// A loaded adapter (LoRA); zero is the model alone.
using AdapterId = base::StrongId<struct AdapterTag, int32_t>;

}  // namespace pagoda

template <typename Tag, typename Int>
struct fmt::formatter<pagoda::base::StrongId<Tag, Int>> : fmt::formatter<Int> {
  template <typename Context>
  auto format(const pagoda::base::StrongId<Tag, Int>& id, Context& context) const {
    return fmt::formatter<Int>::format(id.value(), context);
  }
};

template <typename Tag, typename Int>
struct std::hash<pagoda::base::StrongId<Tag, Int>> {
  size_t operator()(const pagoda::base::StrongId<Tag, Int>& id) const {
    return std::hash<Int>()(id.value());
  }
};
