/* Notes every change of the files below the directory POWER_LOSS_ROOT, and every fsync's begin and
 * end, at the end of the file POWER_LOSS_TRACE (power_loss.rs says how). A change is noted when it has
 * been made and before its caller knows; an fsync's end likewise. Both happen under a lock on the trace:
 * who holds that while the process is killed knows that what was changed has been noted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int trace = -1;
static const char *root;

__attribute__((constructor)) static void begin(void) {
    root = getenv("POWER_LOSS_ROOT");
    const char *path = getenv("POWER_LOSS_TRACE");
    if (root && path) {
        trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
}

static int is_below_root(const char *path) {
    size_t len = strlen(root);
    return !strncmp(path, root, len) && (path[len] == '/' || !path[len]);
}

/* The absolute path of a name that need not be there. */
static int resolve(const char *name, char *path) {
    char folder[PATH_MAX];
    if (trace < 0) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        if (!getcwd(folder, sizeof folder)) return 0;
        if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) return 0;
    }
    return is_below_root(path);
}

/* What an open descriptor is, if that concerns us: its inode in `status`, its path. */
static int look(int fd, struct stat *status, char *path) {
    char link[64];
    if (trace < 0 || syscall(SYS_fstat, fd, status)) return 0;
    if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, PATH_MAX - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    return is_below_root(path);
}

static void note(const void *bytes, size_t count, const char *format, ...) {
    char line[2 * PATH_MAX + 64];
    va_list rest;
    va_start(rest, format);
    int len = vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    struct iovec parts[] = {{line, len}, {(void *)bytes, count}};
    int saved = errno;
    if (syscall(SYS_writev, trace, parts, 2) != len + (ssize_t)count) abort();
    errno = saved;
}

/* The lock on the file is the process's, so threads need one among them. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

static int begin_change(int is_ours) {
    if (!is_ours) return 0;
    pthread_mutex_lock(&changing);
    while (syscall(SYS_flock, trace, LOCK_EX)) {
        if (errno != EINTR) abort();
    }
    return 1;
}

static void end_change(const int *is_ours) {
    if (!*is_ours) return;
    int saved = errno;
    if (syscall(SYS_flock, trace, LOCK_UN)) abort();
    pthread_mutex_unlock(&changing);
    errno = saved;
}

/* Whether a change concerns us; if so, it has the lock from here to the end of its function. */
#define CHANGE(concerns_us) \
    __attribute__((cleanup(end_change))) const int is_ours = begin_change(concerns_us)

int open(const char *name, int flags, ...) {
    char path[PATH_MAX];
    struct stat status;
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    CHANGE((flags & (O_CREAT | O_TRUNC)) && resolve(name, path));
    int is_new = is_ours && syscall(SYS_access, path, F_OK);
    int fd = syscall(SYS_openat, AT_FDCWD, name, flags, mode);
    if (fd >= 0 && is_ours && !syscall(SYS_fstat, fd, &status)) {
        if (is_new) note(0, 0, "create %lu %s\n", status.st_ino, path);
        else if (flags & O_TRUNC) note(0, 0, "resize %lu 0\n", status.st_ino);
    }
    return fd;
}
int open64(const char *name, int flags, ...) __attribute__((alias("open")));

ssize_t write(int fd, const void *bytes, size_t count) {
    char path[PATH_MAX];
    struct stat status;
    CHANGE(look(fd, &status, path));
    ssize_t done = syscall(SYS_write, fd, bytes, count);
    if (done > 0 && is_ours) {
        long end = syscall(SYS_lseek, fd, 0, SEEK_CUR);
        note(bytes, done, "write %lu %ld %zd\n", status.st_ino, end - done, done);
    }
    return done;
}

/* Ends a process that would change our files by a call that is not noted. */
static void refuse(const char *call) {
    dprintf(2, "power_loss.c does not note %s\n", call);
    abort();
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    char path[PATH_MAX];
    struct stat status;
    CHANGE(look(fd, &status, path));
    /* Linux would append the bytes, wherever they are to go. */
    if (is_ours && syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) refuse("pwrite of a file with O_APPEND");
    ssize_t done = syscall(SYS_pwrite64, fd, bytes, count, at);
    if (done > 0 && is_ours) note(bytes, done, "write %lu %ld %zd\n", status.st_ino, at, done);
    return done;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) __attribute__((alias("pwrite")));

int ftruncate(int fd, off_t size) {
    char path[PATH_MAX];
    struct stat status;
    CHANGE(look(fd, &status, path));
    int result = syscall(SYS_ftruncate, fd, size);
    if (!result && is_ours) note(0, 0, "resize %lu %ld\n", status.st_ino, size);
    return result;
}
int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));

static int forced(int fd, long call) {
    char path[PATH_MAX];
    struct stat status;
    int is_ours = look(fd, &status, path), thread = syscall(SYS_gettid);
    if (is_ours && S_ISDIR(status.st_mode)) note(0, 0, "begin-folder %d %s\n", thread, path);
    else if (is_ours) note(0, 0, "begin-file %d %lu\n", thread, status.st_ino);
    int result = syscall(call, fd);
    if (!result && is_ours && S_ISDIR(status.st_mode)) note(0, 0, "end-folder %d %s\n", thread, path);
    else if (!result && is_ours) note(0, 0, "end-file %d %lu\n", thread, status.st_ino);
    return result;
}
int fsync(int fd) { return forced(fd, SYS_fsync); }
int fdatasync(int fd) { return forced(fd, SYS_fdatasync); }

int rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    CHANGE(resolve(from, old) & resolve(to, new));
    int result = syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    if (!result && is_ours) note(0, 0, "rename %s %s\n", old, new);
    return result;
}
int unlink(const char *name) {
    char path[PATH_MAX];
    CHANGE(resolve(name, path));
    int result = syscall(SYS_unlink, name);
    if (!result && is_ours) note(0, 0, "unlink %s\n", path);
    return result;
}
int mkdir(const char *name, mode_t mode) {
    char path[PATH_MAX];
    CHANGE(resolve(name, path));
    int result = syscall(SYS_mkdir, name, mode);
    if (!result && is_ours) note(0, 0, "mkdir %s\n", path);
    return result;
}

/* Calls that would change files unnoticed: of other files and of sockets they are the kernel's. */
static void refuse_file(int fd, const char *call) {
    char path[PATH_MAX];
    struct stat status;
    if (look(fd, &status, path)) refuse(call);
}
static void refuse_name(const char *name, const char *call) {
    char path[PATH_MAX];
    if (resolve(name, path)) refuse(call);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    refuse_file(fd, "writev");
    return syscall(SYS_writev, fd, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    refuse_file(fd, "pwritev");
    return syscall(SYS_pwritev, fd, parts, count, at, 0);
}
ssize_t pwritev64(int, const struct iovec *, int, off64_t) __attribute__((alias("pwritev")));
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    refuse_file(fd, "pwritev2");
    return syscall(SYS_pwritev2, fd, parts, count, at, 0, flags);
}
ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("pwritev2")));
int fallocate(int fd, int mode, off_t at, off_t count) {
    refuse_file(fd, "fallocate");
    return syscall(SYS_fallocate, fd, mode, at, count);
}
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));
/* Tells its error by its result, not by errno. */
int posix_fallocate(int fd, off_t at, off_t count) {
    refuse_file(fd, "posix_fallocate");
    int saved = errno, error = syscall(SYS_fallocate, fd, 0, at, count) ? errno : 0;
    errno = saved;
    return error;
}
int posix_fallocate64(int, off64_t, off64_t) __attribute__((alias("posix_fallocate")));
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t count, unsigned flags) {
    refuse_file(to, "copy_file_range");
    return syscall(SYS_copy_file_range, from, at, to, to_at, count, flags);
}
ssize_t sendfile(int to, int from, off_t *at, size_t count) {
    refuse_file(to, "sendfile");
    return syscall(SYS_sendfile, to, from, at, count);
}
ssize_t sendfile64(int, int, off64_t *, size_t) __attribute__((alias("sendfile")));
ssize_t splice(int from, off64_t *at, int to, off64_t *to_at, size_t count, unsigned flags) {
    refuse_file(to, "splice");
    return syscall(SYS_splice, from, at, to, to_at, count, flags);
}
int truncate(const char *name, off_t size) {
    refuse_name(name, "truncate");
    return syscall(SYS_truncate, name, size);
}
int truncate64(const char *, off64_t) __attribute__((alias("truncate")));
int linkat(int folder, const char *name, int new_folder, const char *new_name, int flags) {
    refuse_name(new_name, "linkat");
    return syscall(SYS_linkat, folder, name, new_folder, new_name, flags);
}
int rmdir(const char *name) {
    refuse_name(name, "rmdir");
    return syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR);
}
