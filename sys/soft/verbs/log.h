// Complaints and traces on stderr. This library exists for tests, so it speaks up by itself when a
// caller breaks the rules; SOFTVERBS_LOG=1 also traces each call. Keys are never printed.
#pragma once

namespace softverbs {

bool tracing();
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Says what is wrong, and returns `error_number` for the caller to pass on.
int complain(int error_number, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace softverbs
