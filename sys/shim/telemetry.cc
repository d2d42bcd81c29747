// A stream for the libraries' telemetry that cuts it into lines and hands them to a callback.
#include "internal.h"

#include <atomic>
#include <ostream>
#include <streambuf>
#include <string>

namespace vgw_cuobj {

namespace {

struct Sink {
    vgw_cuobj_line_fn call;
    void *context;
};

// A library that never ends its line must not eat the memory.
constexpr size_t kLongestLine = 16 * 1024;

// Where a thread keeps the unfinished line of each library.
enum Slot : size_t { kServer, kClient, kSlots };

}  // namespace

// The libraries write from several threads. Each thread collects its own line, so that lines never
// mix and no lock is held while the callback runs.
class Telemetry::Lines : public std::streambuf {
public:
    explicit Lines(size_t slot) : slot_(slot) {}

    void set_sink(vgw_cuobj_line_fn call, void *context) {
        // The old one is not freed: a thread may be about to call it. Sinks are set a few times in
        // the life of a process.
        sink_.store(new Sink{call, context}, std::memory_order_release);
    }

    bool set_running(bool running) { return running_.exchange(running) != running; }

protected:
    int_type overflow(int_type c) override {
        if (!traits_type::eq_int_type(c, traits_type::eof())) {
            const char byte = traits_type::to_char_type(c);
            xsputn(&byte, 1);
        }
        return traits_type::not_eof(c);
    }

    std::streamsize xsputn(const char *data, std::streamsize count) override {
        std::string &line = line_of_this_thread(slot_);
        for (std::streamsize i = 0; i < count; ++i) {
            if (data[i] != '\n') {
                line.push_back(data[i]);
            }
            if (data[i] == '\n' || line.size() >= kLongestLine) {
                hand_over(line);
            }
        }
        return count;
    }

private:
    static std::string &line_of_this_thread(size_t slot) {
        thread_local std::string lines[kSlots];
        return lines[slot];
    }

    void hand_over(std::string &line) {
        const Sink *sink = sink_.load(std::memory_order_acquire);
        if (sink != nullptr && !line.empty()) {
            sink->call(sink->context, line.data(), line.size());
        }
        line.clear();
    }

    const size_t slot_;
    std::atomic<const Sink *> sink_{nullptr};
    std::atomic<bool> running_{false};
};

Telemetry::Telemetry(size_t slot) : lines_(new Lines(slot)), stream_(new std::ostream(lines_)) {}

void Telemetry::set_sink(vgw_cuobj_line_fn sink, void *context) {
    lines_->set_sink(sink, context);
}

bool Telemetry::begin() {
    return lines_->set_running(true);
}

bool Telemetry::end() {
    return lines_->set_running(false);
}

Telemetry &server_telemetry() {
    static Telemetry *telemetry = new Telemetry(kServer);
    return *telemetry;
}

Telemetry &client_telemetry() {
    static Telemetry *telemetry = new Telemetry(kClient);
    return *telemetry;
}

}  // namespace vgw_cuobj
