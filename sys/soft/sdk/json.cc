#include "sdk/json.h"

#include <algorithm>
#include <cctype>

namespace cuobj_soft {

namespace {

constexpr int kMaxDepth = 32;

class Reader {
public:
    explicit Reader(const std::string& text) : text_(text) {}

    bool read(JsonValues* out) {
        skip();
        return value("", out, 0) && (skip(), at_ == text_.size());
    }

    size_t line() const {
        return 1 + static_cast<size_t>(std::count(text_.begin(),
                                                  text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
    }

private:
    // White space and comments.
    void skip() {
        while (at_ < text_.size()) {
            if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
                at_++;
            } else if (text_.compare(at_, 2, "//") == 0) {
                at_ = std::min(text_.find('\n', at_), text_.size());
            } else if (text_.compare(at_, 2, "/*") == 0) {
                size_t end = text_.find("*/", at_ + 2);
                at_ = end == std::string::npos ? text_.size() : end + 2;
            } else {
                return;
            }
        }
    }

    bool take(char c) {
        skip();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        at_++;
        return true;
    }

    bool value(const std::string& path, JsonValues* out, int depth) {
        if (depth > kMaxDepth) return false;
        skip();
        if (at_ >= text_.size()) return false;
        if (text_[at_] == '{') return object(path, out, depth);
        if (text_[at_] == '[') return array(path, out, depth);
        std::string scalar;
        if (!(text_[at_] == '"' ? string(&scalar) : word(&scalar))) return false;
        (*out)[path].push_back(std::move(scalar));
        return true;
    }

    bool object(const std::string& path, JsonValues* out, int depth) {
        take('{');
        while (!take('}')) {
            std::string name;
            skip();
            if (!string(&name) || !take(':')) return false;
            std::string inner = path.empty() ? name : path + "." + name;
            out->erase(inner);  // of two equal names the later one counts
            if (!value(inner, out, depth + 1)) return false;
            if (!take(',') && !closes('}')) return false;
        }
        return true;
    }

    bool array(const std::string& path, JsonValues* out, int depth) {
        take('[');
        (*out)[path];
        while (!take(']')) {
            if (!value(path, out, depth + 1)) return false;
            if (!take(',') && !closes(']')) return false;
        }
        return true;
    }

    bool closes(char c) {
        skip();
        return at_ < text_.size() && text_[at_] == c;
    }

    bool string(std::string* out) {
        if (at_ >= text_.size() || text_[at_] != '"') return false;
        for (at_++; at_ < text_.size(); at_++) {
            char c = text_[at_];
            if (c == '"') {
                at_++;
                return true;
            }
            if (c == '\n') return false;
            if (c == '\\') {
                if (++at_ >= text_.size()) return false;
                c = text_[at_];
                // Names, addresses and numbers need no other escapes; they are kept as written.
                if (c == 'n') c = '\n';
                else if (c == 't') c = '\t';
            }
            out->push_back(c);
        }
        return false;
    }

    bool word(std::string* out) {
        while (at_ < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '+' ||
                text_[at_] == '-' || text_[at_] == '.')) {
            out->push_back(text_[at_++]);
        }
        return !out->empty();
    }

    const std::string& text_;
    size_t at_ = 0;
};

}  // namespace

std::optional<JsonValues> read_json(const std::string& text, std::string* error) {
    Reader reader(text);
    JsonValues values;
    if (reader.read(&values)) return values;
    *error = "not valid JSON at line " + std::to_string(reader.line());
    return std::nullopt;
}

}  // namespace cuobj_soft
