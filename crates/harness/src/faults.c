/* Loaded before the C library. A call fails if a line of the file DISK_FAULTS has its name, an error
   number, and a part of the path it is about, at the path's end if a $ is behind it. As long as there is
   such a line with stuck-fsync or stuck-write, whatever the number, such a call does not end. room and
   stuck-room are the writes of the thread that makes room ahead of a log, direct those past the page
   cache. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(const char *call, int fd, const char *path) {
    const char *file = getenv("DISK_FAULTS");
    int saved = errno, number, in;
    char text[2048], target[4096], link[64], name[32], part[512], *line, *rest = text;
    if (!file || (in = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY)) < 0) return errno = saved, 0;
    ssize_t len = syscall(SYS_read, in, text, sizeof text - 1);
    syscall(SYS_close, in);
    text[len < 0 ? 0 : len] = 0;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        len = readlink(link, target, sizeof target - 1);
        target[len < 0 ? 0 : len] = 0;
        path = target;
    }
    while ((line = strsep(&rest, "\n"))) {
        if (sscanf(line, "%31s %d %511s", name, &number, part) != 3 || strcmp(name, call)) continue;
        size_t size = strlen(part), all = strlen(path);
        int at_end = part[size - 1] == '$';
        if (at_end) part[--size] = 0;
        if (at_end ? all >= size && !strcmp(path + all - size, part) : !!strstr(path, part)) {
            errno = number;
            return 1;
        }
    }
    errno = saved;
    return 0;
}

static int force(int fd, long call) {
    while (fails("stuck-fsync", fd, 0)) usleep(5000);
    return fails("fsync", fd, 0) ? -1 : (int)syscall(call, fd);
}

int fsync(int fd) { return force(fd, SYS_fsync); }
int fdatasync(int fd) { return force(fd, SYS_fdatasync); }
ssize_t write(int fd, const void *bytes, size_t count) {
    while (fails("stuck-write", fd, 0)) usleep(5000);
    return fails("write", fd, 0) ? -1 : syscall(SYS_write, fd, bytes, count);
}
static int makes_room(void) {
    char name[16];
    return !prctl(PR_GET_NAME, name) && !strcmp(name, "aof-fsync");
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    if ((fcntl(fd, F_GETFL) & O_DIRECT) && fails("direct", fd, 0)) return -1;
    if (makes_room()) {
        while (fails("stuck-room", fd, 0)) usleep(5000);
        if (fails("room", fd, 0)) return -1;
    }
    while (fails("stuck-write", fd, 0)) usleep(5000);
    return fails("write", fd, 0) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite(fd, bytes, count, at);
}
int ftruncate(int fd, off_t size) {
    return fails("truncate", fd, 0) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
int rename(const char *from, const char *to) {
    return fails("rename", 0, to) ? -1 : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
