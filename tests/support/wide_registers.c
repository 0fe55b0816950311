// Counts the calls of exp() that find the upper halves of wide registers in use: a kernel has not cleared them, and every
// instruction that knows only the lower halves waits for the processor to save them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static unsigned long n_calls, n_in_use;

double exp(double x) {
    static double (*real)(double);
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    n_calls++;
    n_in_use += (low >> 2) & 1;
    if (!real) real = (double (*)(double))dlsym(RTLD_NEXT, "exp");
    return real(x);
}

__attribute__((destructor)) static void tell(void) { printf("%lu %lu\n", n_calls, n_in_use); }
