#include "sdk/client_config.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "sdk/json.h"

namespace cuobj_soft {

namespace {

const char* environment(const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? value : nullptr;
}

std::optional<std::string> read_file(const std::string& path) {
    std::ifstream in(path);
    if (!in) return std::nullopt;
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

JsonValues read_config_file(std::vector<std::string>* notes) {
    const char* named = environment("CUOBJ_ENV_PATH_JSON");
    if (!named) named = environment("CUFILE_ENV_PATH_JSON");
    std::vector<std::string> paths = {"/etc/cuobj.json", "/etc/cufile.json"};
    if (named) paths = {named};
    for (const std::string& path : paths) {
        std::optional<std::string> text = read_file(path);
        if (!text) {
            if (named) notes->push_back("cannot read the configuration file " + path);
            continue;
        }
        std::string error;
        std::optional<JsonValues> values = read_json(*text, &error);
        if (values) return *values;
        notes->push_back("configuration file " + path + ": " + error);
    }
    return {};
}

// Decimal, or hexadecimal after 0x; at most 32 bits, as in a NIC.
std::optional<uint64_t> parse_key(const std::string& text) {
    char* end = nullptr;
    errno = 0;
    unsigned long long value = std::strtoull(text.c_str(), &end, 0);
    if (text.empty() || text[0] == '-' || *end != '\0' || errno != 0) return std::nullopt;
    return value;
}

bool parse_endpoint(const std::string& text, softfabric::Address* address, uint16_t* port) {
    std::string host = text;
    std::string digits;
    if (text[0] == '[') {
        size_t close = text.find(']');
        if (close == std::string::npos) return false;
        host = text.substr(1, close - 1);
        std::string rest = text.substr(close + 1);
        if (!rest.empty() && rest[0] != ':') return false;
        if (!rest.empty()) digits = rest.substr(1);
        if (!rest.empty() && digits.empty()) return false;
    } else if (text.find(':') == text.rfind(':') && text.find(':') != std::string::npos) {
        host = text.substr(0, text.find(':'));
        digits = text.substr(text.find(':') + 1);
        if (digits.empty()) return false;
    }
    if (!digits.empty()) {
        if (digits.size() > 5 || digits.find_first_not_of("0123456789") != std::string::npos) {
            return false;
        }
        unsigned long value = std::stoul(digits);
        if (value > UINT16_MAX) return false;
        *port = static_cast<uint16_t>(value);
    }
    std::optional<softfabric::Address> parsed = softfabric::Address::parse(host);
    if (!parsed) return false;
    *address = *parsed;
    return true;
}

}  // namespace

bool ClientConfig::load(std::string* error) {
    JsonValues file = read_config_file(&notes);

    std::vector<std::string> keys = file["properties.rdma_dc_key"];
    if (const char* key = environment("CUOBJ_RDMA_DC_KEY")) keys = {key};
    if (!keys.empty()) {
        if (std::optional<uint64_t> key = parse_key(keys[0])) dc_key = *key;
        else notes.push_back("the DC key is not a number; using the default");
    }

    if (const char* text = environment("CUOBJ_SOFT_ADDR")) {
        if (!parse_endpoint(text, &address, &port) || !address.is_unicast() || !address.is_local()) {
            *error = std::string("CUOBJ_SOFT_ADDR=") + text + " is not an address of this host";
            return false;
        }
        return true;
    }
    const std::vector<std::string>& listed = file["properties.rdma_dev_addr_list"];
    for (const std::string& entry : listed) {
        std::optional<softfabric::Address> candidate = softfabric::Address::parse(entry);
        if (candidate && candidate->is_unicast() && candidate->is_local()) {
            address = *candidate;
            return true;
        }
    }
    if (!listed.empty()) {
        notes.push_back("no entry of rdma_dev_addr_list is an address of this host; using 127.0.0.1");
    }
    address = *softfabric::Address::parse("127.0.0.1");
    return true;
}

}  // namespace cuobj_soft
