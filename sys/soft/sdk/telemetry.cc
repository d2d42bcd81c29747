#include "sdk/telemetry.h"

namespace cuobj_soft {

void Telemetry::set_stream(std::ostream* stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    stream_ = stream;
}

void Telemetry::write(unsigned flag, const char* level, const std::string& line) {
    if (!wants(flag)) return;
    // One insertion per line: a program's stream buffer may cut lines at each write.
    std::string text = std::string(library_) + ": " + level + ": " + line + "\n";
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stream_) return;
    // The stream is the program's and may be set to throw; no caller expects that from here.
    try {
        *stream_ << text << std::flush;
    } catch (const std::exception&) {
    }
}

Telemetry& server_telemetry() {
    static auto* telemetry = new Telemetry("cuObjServer (software)");
    return *telemetry;
}

Telemetry& client_telemetry() {
    static auto* telemetry = new Telemetry("cuObjClient (software)");
    return *telemetry;
}

}  // namespace cuobj_soft
