// Log lines of one library, into the stream that the program gave to setupTelemetry().
#pragma once

#include <atomic>
#include <mutex>
#include <ostream>
#include <string>

#include "cuobjtelem.h"

namespace cuobj_soft {

// Lines never contain keys, tokens or addresses of memory.
class Telemetry {
public:
    explicit Telemetry(const char* library) : library_(library) {}

    void set_stream(std::ostream* stream);
    void set_flags(unsigned flags) { flags_ = flags; }

    bool wants(unsigned flag) const { return (flags_ & flag) != 0; }
    void info(const std::string& line) { write(CUOBJ_LOG_PATH_INFO, "info", line); }
    void debug(const std::string& line) { write(CUOBJ_LOG_PATH_DEBUG, "debug", line); }
    void error(const std::string& line) { write(CUOBJ_LOG_PATH_ERROR, "error", line); }

private:
    void write(unsigned flag, const char* level, const std::string& line);

    const char* library_;
    std::atomic<unsigned> flags_{CUOBJ_LOG_PATH_ERROR};
    std::mutex mutex_;
    std::ostream* stream_ = nullptr;
};

// Each library has its own. They are never destroyed, since threads may still write at exit.
Telemetry& server_telemetry();
Telemetry& client_telemetry();

}  // namespace cuobj_soft
