/* A disk that fails or is slow where a test says: preloaded into a server, it stands in front of the C library's calls
   that write, sync, cut or open files below one folder. All other files are left alone.

   AGENTLS_FAULTS_FOLDER is the folder, AGENTLS_FAULTS_CONTROL a file that the test maps as well (tests/e2e/storage.py):
   calls are numbered from 0 in `count`, each is written down in `calls`, and those from `first` to before `last` fail
   with `error`. A sync waits for `delay` microseconds. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define CALLS 32768
#define NAME 32

struct control {
    volatile uint32_t count, failed, first, last, error, delay, reserved[2];
    char calls[CALLS][NAME];
};

static struct control *control;
static char folder[PATH_MAX];
static size_t folder_length;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off64_t);

__attribute__((constructor)) static void begin(void) {
    real_open = dlsym(RTLD_NEXT, "open64");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    const char *path = getenv("AGENTLS_FAULTS_CONTROL"), *below = getenv("AGENTLS_FAULTS_FOLDER");
    if (path == NULL || below == NULL) return;
    int fd = real_open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    folder_length = strlen(below);
    memcpy(folder, below, folder_length + 1);
    control = mapped;
}

/* Whether this call is to fail, with errno set; it is counted if the file is below the folder. */
static int fails(const char *call, const char *path) {
    if (strncmp(path, folder, folder_length) != 0 || path[folder_length] != '/') return 0;
    uint32_t number = __atomic_fetch_add(&control->count, 1, __ATOMIC_SEQ_CST);
    const char *name = strrchr(path, '/') + 1;
    snprintf(control->calls[number % CALLS], NAME, "%s %s", call, name);
    if (number < control->first || number >= control->last) return 0;
    __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = (int)control->error;
    return 1;
}

static int fails_at(const char *call, int fd) {
    char link[32], path[PATH_MAX];
    if (control == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int kept = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (length < 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

static int opens(const char *path, int flags) {
    /* Who only looks changes nothing. */
    if (control == NULL || !(flags & (O_WRONLY | O_RDWR | O_CREAT))) return 0;
    return fails("open", path);
}

static void slow(int fd) {
    char link[32], path[PATH_MAX];
    if (control == NULL || control->delay == 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > (ssize_t)folder_length && strncmp(path, folder, folder_length) == 0) usleep(control->delay);
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return opens(path, flags) ? -1 : real_open(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return opens(path, flags) ? -1 : real_open(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return opens(path, flags) ? -1 : real_openat(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return opens(path, flags) ? -1 : real_openat(at, path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    return fails_at("write", fd) ? -1 : real_write(fd, bytes, size);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    return fails_at("write", fd) ? -1 : real_pwrite(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    return fails_at("write", fd) ? -1 : real_pwrite(fd, bytes, size, at);
}

int fsync(int fd) {
    slow(fd);
    return fails_at("sync", fd) ? -1 : real_fsync(fd);
}

int fdatasync(int fd) {
    slow(fd);
    return fails_at("sync", fd) ? -1 : real_fdatasync(fd);
}

int ftruncate(int fd, off_t size) {
    return fails_at("cut", fd) ? -1 : real_ftruncate(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    return fails_at("cut", fd) ? -1 : real_ftruncate(fd, size);
}
