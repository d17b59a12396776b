/* libfaketime 0.9.10 refuses clock_nanosleep where it is to leave monotonic clocks alone, and Python sleeps by it: this
   one asks the kernel. To be preloaded before libfaketime. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    int before = errno;
    int error = syscall(SYS_clock_nanosleep, clock, flags, until, left) ? errno : 0;
    errno = before;
    return error;
}
