/* A wall's clock of one's own for the processes that this is loaded into (LD_PRELOAD): ahead of the machine's, or
 * behind, by as many seconds as the first eight bytes of the file SET_CLOCK_FILE say, from the moment they say so.
 * Monotonic clocks, sleeps and timeouts are as they are. Deadlines by the wall's clock are given back to the kernel
 * as the machine has them: those of a monotonic clock are told by being before 2001. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define BY_THE_WALL 1000000000

static volatile int64_t none, *ahead_s = &none;

__attribute__((constructor)) static void load(void) {
    const char *name = getenv("SET_CLOCK_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) ahead_s = at;
    close(file);
}

static int now(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    return real ? real(clock, at) : (int)syscall(SYS_clock_gettime, clock, at);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = now(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI)) at->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec wall;
    (void)zone;
    if (at && clock_gettime(CLOCK_REALTIME, &wall) == 0) *at = (struct timeval){wall.tv_sec, wall.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *at) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (at) *at = wall.tv_sec;
    return wall.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0;
}

static struct timespec of_the_machine(const struct timespec *deadline) {
    struct timespec at = *deadline;
    if (at.tv_sec > BY_THE_WALL) at.tv_sec -= *ahead_s;
    return at;
}

/* Conditions have had two layouts; only the newer one is in use. */
int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec deadline = of_the_machine(at);
    return real(c, m, &deadline);
}

int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict at) {
    int failed = pthread_cond_timedwait((pthread_cond_t *)c, (pthread_mutex_t *)m, at);
    return failed == 0 ? thrd_success : failed == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int sem_timedwait(sem_t *restrict s, const struct timespec *restrict at) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec deadline = of_the_machine(at);
    return real(s, &deadline);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
    struct timespec deadline = of_the_machine(at);
    return real(m, &deadline);
}
