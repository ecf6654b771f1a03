#include "model/template/text.h"

#include <algorithm>
#include <cstring>

namespace pagoda::model::jinja {

void TextBuilder::check_growth(size_t n_bytes) const {
  if (n_bytes > max_bytes_ || bytes_.size() > max_bytes_ - n_bytes) {
    throw TemplateError{.message = message("makes more than {} bytes of text", max_bytes_),
                        .is_limit = true};
  }
}

void TextBuilder::append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) return;
  check_growth(bytes.size());
  workspace_.tick_bytes(bytes.size());
  bytes_.append(bytes);
  if (stretches_.empty() || stretches_.back().from_user != from_user) {
    stretches_.push_back({bytes_.size(), from_user});
  } else {
    stretches_.back().end = bytes_.size();
  }
}

void TextBuilder::append(const Text& text) {
  for_each_stretch(text, [&](size_t begin, size_t end, bool from_user) {
    append(text.bytes.substr(begin, end - begin), from_user);
  });
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  if (text.stretches.empty()) {
    append(text.bytes.substr(begin, end - begin), text.from_user);
    return;
  }
  auto stretch = std::upper_bound(text.stretches.begin(), text.stretches.end(), begin,
                                  [](size_t at, const Stretch& s) { return at < s.end; });
  while (begin < end) {
    const size_t stop = std::min(end, stretch->end);
    append(text.bytes.substr(begin, stop - begin), stretch->from_user);
    begin = stop;
    ++stretch;
  }
}

void TextBuilder::append_repeated(const Text& text, size_t n) {
  if (text.bytes.empty()) return;
  if (n > SIZE_MAX / text.bytes.size()) fail("makes too long a text");
  const size_t n_bytes = text.bytes.size() * n;
  check_growth(n_bytes);
  workspace_.check_room(n_bytes);
  bytes_.reserve(bytes_.size() + n_bytes);
  // A short text many times over is as much work as a step each.
  workspace_.tick(static_cast<int64_t>(n / 16));
  for (size_t i = 0; i < n; ++i) append(text);
}

const Text* TextBuilder::finish(Workspace& workspace) const {
  const std::string_view bytes = workspace.copy(bytes_);
  std::span<const Stretch> stretches;
  if (stretches_.size() > 1) stretches = workspace.copy(stretches_);
  return workspace.make<Text>(Text{.bytes = bytes,
                                   .stretches = stretches,
                                   .from_user = stretches_.size() == 1 && last_from_user(),
                                   .is_ascii = is_ascii(bytes)});
}

const Text* view_text(Workspace& workspace, std::string_view bytes, bool from_user) {
  return workspace.make<Text>(
      Text{.bytes = bytes, .from_user = from_user, .is_ascii = is_ascii(bytes)});
}

const Text* make_text(Workspace& workspace, std::string_view bytes, bool from_user) {
  return view_text(workspace, workspace.copy(bytes), from_user);
}

namespace {

// A buffer that begins with `left`, with room for `size` bytes.
TextBuffer* make_buffer(Workspace& workspace, const Text& left, size_t capacity) {
  auto* buffer = workspace.make<TextBuffer>();
  buffer->bytes = static_cast<char*>(workspace.allocate(capacity));
  buffer->capacity = capacity;
  workspace.tick_bytes(left.bytes.size());
  std::memcpy(buffer->bytes, left.bytes.data(), left.bytes.size());
  return buffer;
}

// The stretches of `left` and then `right`, in a buffer that may hold those of `left` already.
std::span<const Stretch> add_stretches(Workspace& workspace, TextBuffer& buffer, const Text& left,
                                       std::span<const Stretch> right) {
  const size_t n_left = std::max<size_t>(left.stretches.size(), 1);
  const size_t n = n_left + right.size();
  const bool is_there = !left.stretches.empty() && left.stretches.data() == buffer.stretches;
  if (!is_there || n > buffer.stretch_capacity) {
    buffer.stretch_capacity = 2 * n;
    auto* stretches = static_cast<Stretch*>(workspace.allocate(2 * n * sizeof(Stretch)));
    workspace.tick_bytes(n_left * sizeof(Stretch));
    if (left.stretches.empty()) {
      new (stretches) Stretch{left.bytes.size(), left.from_user};
    } else {
      std::uninitialized_copy(left.stretches.begin(), left.stretches.end(), stretches);
    }
    buffer.stretches = stretches;
  }
  for (size_t i = 0; i < right.size(); ++i) {
    new (&buffer.stretches[n_left + i])
        Stretch{left.bytes.size() + right[i].end, right[i].from_user};
  }
  return {buffer.stretches, n};
}

}  // namespace

const Text* concatenate(Workspace& workspace, const Text& left, const TextBuilder& right) {
  if (left.bytes.empty()) return right.finish(workspace);
  if (right.size() == 0) return with_markup(workspace, left, false);
  const size_t size = left.bytes.size() + right.size();
  TextBuffer* buffer = left.buffer;
  const bool is_newest = buffer != nullptr && buffer->size == left.bytes.size();
  if (!is_newest || size > buffer->capacity) {
    // What was added to once will be added to again.
    buffer = make_buffer(workspace, left, is_newest ? 2 * size : size);
  }
  std::memcpy(buffer->bytes + left.bytes.size(), right.bytes().data(), right.size());
  buffer->size = size;
  const bool is_of_one = left.stretches.empty() && right.stretches().size() == 1 &&
                         right.last_from_user() == left.from_user;
  std::span<const Stretch> stretches;
  if (!is_of_one) stretches = add_stretches(workspace, *buffer, left, right.stretches());
  return workspace.make<Text>(Text{.bytes = {buffer->bytes, size},
                                   .stretches = stretches,
                                   .from_user = is_of_one && left.from_user,
                                   .is_ascii = left.is_ascii && is_ascii(right.bytes()),
                                   .buffer = buffer});
}

const Text* sub_text(Workspace& workspace, const Text& text, size_t begin, size_t end) {
  end = std::min(end, text.bytes.size());
  begin = std::min(begin, end);
  if (begin == 0 && end == text.bytes.size()) return &text;
  if (!text.is_ascii) workspace.tick_bytes(end - begin);
  const std::string_view bytes = text.bytes.substr(begin, end - begin);
  Text part{.bytes = bytes,
            .from_user = text.from_user,
            .is_markup = text.is_markup,
            .is_ascii = text.is_ascii || is_ascii(bytes)};
  if (!text.stretches.empty() && begin < end) {
    const auto first = std::upper_bound(text.stretches.begin(), text.stretches.end(), begin,
                                        [](size_t at, const Stretch& s) { return at < s.end; });
    auto last = first;
    bool is_of_one = true;
    for (; last->end < end; ++last) {
      is_of_one = is_of_one && std::next(last)->from_user == first->from_user;
    }
    part.from_user = first->from_user && is_of_one;
    if (!is_of_one) {
      const std::span<Stretch> cut = workspace.copy(std::span<const Stretch>(first, last + 1));
      for (Stretch& stretch : cut) stretch.end = std::min(stretch.end, end) - begin;
      part.stretches = cut;
    }
  }
  return workspace.make<Text>(part);
}

const Text* with_markup(Workspace& workspace, const Text& text, bool is_markup) {
  if (text.is_markup == is_markup) return &text;
  Text* copy = workspace.make<Text>(text);
  copy->is_markup = is_markup;
  return copy;
}

bool is_from_user(const Text& text, size_t at) {
  if (text.stretches.empty()) return text.from_user;
  return std::upper_bound(text.stretches.begin(), text.stretches.end(), at,
                          [](size_t a, const Stretch& s) { return a < s.end; })
      ->from_user;
}

size_t offset_of(Workspace& workspace, const Text& text, size_t index) {
  if (text.is_ascii) return std::min(index, text.bytes.size());
  const size_t offset = character_offset(text.bytes, index);
  workspace.tick_bytes(offset);
  return offset;
}

size_t find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size() || needle.size() > text.size() - from) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last(Workspace& workspace, std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  if (needle.empty()) return text.size();
  constexpr size_t kCostOfATry = 8;  // in bytes
  // Tries each place where the needle's first byte stands, from the right.
  for (size_t n_places = text.size() - needle.size() + 1;;) {
    const void* found = memrchr(text.data(), needle[0], n_places);
    if (found == nullptr) {
      workspace.tick_bytes(n_places);
      return std::string_view::npos;
    }
    const auto at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    const auto differs = std::mismatch(needle.begin(), needle.end(), text.begin() + at).first;
    const auto n_compared = static_cast<size_t>(differs - needle.begin());
    workspace.tick_bytes(n_places - at + n_compared + kCostOfATry);
    if (n_compared == needle.size()) return at;
    n_places = at;
  }
}

}  // namespace pagoda::model::jinja
