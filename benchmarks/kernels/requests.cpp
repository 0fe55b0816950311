// Callgrind's requests, for a program that is not compiled here (Python).
#include <valgrind/callgrind.h>

extern "C" {
void start_counting() {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}
void stop_counting(const char* name) {
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
}
