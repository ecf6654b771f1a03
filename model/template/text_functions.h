// What Python's str can do, byte for byte as to who wrote what. Used by methods and filters.
#pragma once

#include <cstdint>
#include <vector>

#include "model/template/value.h"

namespace pagoda::model::jinja {

// Texts that are being put together.
using Texts = Temporary<const Text*>;

enum class Side : uint8_t { kLeft, kRight, kBoth };

// Without blanks, or without any of the characters of `chars`, at the ends.
const Text* strip(Workspace& workspace, const Text& text, const Text* chars, Side side);
// The first `count` places; all if it is negative.
const Text* replace(Workspace& workspace, const Text& text, const Text& old_part,
                    const Text& new_part, int64_t count);

const Text* upper(Workspace& workspace, const Text& text);
const Text* lower(Workspace& workspace, const Text& text);
const Text* fold_case(Workspace& workspace, const Text& text);
const Text* swap_case(Workspace& workspace, const Text& text);
const Text* capitalize(Workspace& workspace, const Text& text);
// str.title(): a word is a run of letters.
const Text* title(Workspace& workspace, const Text& text);
// The filter title: a word ends at a blank, a hyphen or an opening bracket.
const Text* title_words(Workspace& workspace, const Text& text);

// At blanks if there is no separator. At most `max_parts` + 1 parts if it is not negative.
Texts split(Workspace& workspace, const Text& text, const Text* separator, int64_t max_splits);
Texts split_right(Workspace& workspace, const Text& text, const Text* separator,
                  int64_t max_splits);
Texts split_lines(Workspace& workspace, const Text& text, bool keep_ends);

const Text* join(Workspace& workspace, const Text& separator, const Texts& parts);

// In a field of `width` characters; kLeft: the text stands left.
const Text* pad(Workspace& workspace, const Text& text, int64_t width, const Text& fill, Side side);
const Text* fill_zeros(Workspace& workspace, const Text& text, int64_t width);

bool is_lower_text(Workspace& workspace, const Text& text);
bool is_upper_text(Workspace& workspace, const Text& text);
// Whether there is a character and every one passes.
bool all_characters(Workspace& workspace, const Text& text, bool (*test)(char32_t));

}  // namespace pagoda::model::jinja
