// A reader for cuFile's configuration files: JSON, with // and /* */ comments and stray commas.
//
// Only what the client looks for is kept: scalars and arrays of scalars, by their dotted path.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cuobj_soft {

// "properties.rdma_dc_key" -> {"0xffeeddcc"}; an array has one entry per element. Numbers and
// literals are kept as they are written.
using JsonValues = std::map<std::string, std::vector<std::string>>;

// Nothing when the text is not such a file; then `error` names the line.
std::optional<JsonValues> read_json(const std::string& text, std::string* error);

}  // namespace cuobj_soft
