#include "fabric/fault.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

namespace softfabric {

namespace {

struct Rule {
    std::optional<Fault::Kind> kind;  // none: a delay
    uint64_t nth = 0;
    uint64_t every = 0;
    std::optional<Direction> only;
    Fault fault;
    uint64_t seen = 0;

    bool hits(Direction direction) {
        if (only && *only != direction) return false;
        seen++;
        if (nth != 0) return seen == nth;
        return every == 0 || seen % every == 0;
    }
};

std::mutex mutex;
std::vector<Rule>& rules() {
    static auto* all = new std::vector<Rule>;  // never destroyed: threads may outlive main()
    return *all;
}
std::atomic<bool> active{false};

std::optional<uint64_t> number(const std::string& text) {
    if (text.empty()) return std::nullopt;
    char* end = nullptr;
    errno = 0;
    unsigned long long value = std::strtoull(text.c_str(), &end, 0);
    if (*end != '\0' || errno != 0 || text[0] == '-') return std::nullopt;
    return value;
}

bool apply_setting(Rule& rule, const std::string& name, const std::string& text) {
    if (name == "op") {
        if (text == "read") rule.only = Direction::kRead;
        else if (text == "write") rule.only = Direction::kWrite;
        else return false;
        return true;
    }
    std::optional<uint64_t> value = number(text);
    if (!value) return false;
    if (name == "n") rule.nth = *value;
    else if (name == "every") rule.every = *value;
    else if (name == "ms") rule.fault.delay_ms = static_cast<unsigned>(*value);
    else if (name == "code") rule.fault.status = static_cast<Status>(*value);
    else if (name == "errno") rule.fault.error_number = static_cast<int>(*value);
    else if (name == "at") rule.fault.at = *value;
    else return false;
    return true;
}

bool parse_rule(const std::string& text, Rule* rule, std::string* error) {
    size_t colon = text.find(':');
    std::string kind = text.substr(0, colon);
    using Kind = Fault::Kind;
    if (kind == "status") rule->kind = Kind::kStatus;
    else if (kind == "submit") rule->kind = Kind::kSubmit;
    else if (kind == "drop") rule->kind = Kind::kDrop;
    else if (kind == "short") rule->kind = Kind::kShort;
    else if (kind == "disconnect") rule->kind = Kind::kDisconnect;
    else if (kind == "corrupt") rule->kind = Kind::kCorrupt;
    else if (kind != "delay") {
        *error = "unknown kind '" + kind + "'";
        return false;
    }
    std::istringstream settings(colon == std::string::npos ? "" : text.substr(colon + 1));
    for (std::string setting; std::getline(settings, setting, ',');) {
        size_t equals = setting.find('=');
        if (equals == std::string::npos ||
            !apply_setting(*rule, setting.substr(0, equals), setting.substr(equals + 1))) {
            *error = "setting '" + setting + "' of '" + kind + "'";
            return false;
        }
    }
    if (rule->kind) rule->fault.kind = *rule->kind;
    if (rule->kind == Kind::kStatus && rule->fault.status == Status::kSuccess) {
        rule->fault.status = Status::kRetryExceeded;
    }
    if (rule->kind == Kind::kSubmit && rule->fault.error_number == 0) {
        rule->fault.error_number = EIO;
    }
    return true;
}

void read_environment() {
    static std::once_flag once;
    std::call_once(once, [] {
        const char* text = std::getenv("CUOBJ_SOFT_FAULT");
        std::string error;
        if (text && *text && !set_fault_rules(text, &error)) {
            std::fprintf(stderr, "software cuObject: CUOBJ_SOFT_FAULT is ignored: %s\n",
                         error.c_str());
        }
    });
}

}  // namespace

bool set_fault_rules(const std::string& text, std::string* error) {
    std::vector<Rule> parsed;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ';');) {
        if (part.empty()) continue;
        Rule rule;
        if (!parse_rule(part, &rule, error)) return false;
        parsed.push_back(rule);
    }
    if (!parsed.empty()) {
        std::fprintf(stderr, "software cuObject: failing on purpose, as asked: %s\n", text.c_str());
    }
    std::lock_guard<std::mutex> lock(mutex);
    rules() = std::move(parsed);
    active = !rules().empty();
    return true;
}

Fault next_fault(Direction direction) {
    read_environment();
    Fault fault;
    if (!active.load(std::memory_order_relaxed)) return fault;
    std::lock_guard<std::mutex> lock(mutex);
    for (Rule& rule : rules()) {
        if (!rule.hits(direction)) continue;
        fault.delay_ms += rule.fault.delay_ms;
        if (rule.kind && fault.kind == Fault::Kind::kNone) {
            unsigned delay = fault.delay_ms;
            fault = rule.fault;
            fault.delay_ms = delay;
        }
    }
    return fault;
}

}  // namespace softfabric
