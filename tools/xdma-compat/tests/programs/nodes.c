/* Device files by all their names, callers that are interrupted or killed, and callers that are not served. The argument names the test. */
#include "check.h"
#include <dirent.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* `openat2` of a device file ends as that of another character device. */
static void same_as_other_device(const uint64_t *how, size_t size)
{
    long ends[2];
    const char *paths[] = {"/dev/null", "/dev/xdma0_user"};
    for (int i = 0; i < 2; i++) {
        ends[i] = syscall(SYS_openat2, AT_FDCWD, paths[i], how, size);
        ends[i] = ends[i] < 0 ? errno : close((int)ends[i]);
    }
    if (ends[0] != ends[1]) {
        fprintf(stderr, "openat2 {%#llx, %#llx, %#llx}, %zu: error %ld instead of %ld\n", (unsigned long long)how[0], (unsigned long long)how[1],
                (unsigned long long)how[2], size, ends[1], ends[0]);
        exit(1);
    }
}

static void names(void)
{
    const char *node = "/dev/xdma0_user", *link = "/dev/xdma/card0/user";
    char text[4200];
    struct stat status, other;
    struct statfs system;
    CHECK(stat(node, &status) == 0 && S_ISCHR(status.st_mode) && status.st_size == 0 && status.st_nlink == 1);
    CHECK(stat(link, &other) == 0 && other.st_rdev == status.st_rdev && other.st_ino == status.st_ino);
    CHECK(lstat(link, &other) == 0 && S_ISLNK(other.st_mode));
    CHECK(readlink(link, text, sizeof text) == 16 && memcmp(text, "../../xdma0_user", 16) == 0);
    CHECK(readlink(link, text, 5) == 5 && memcmp(text, "../..", 5) == 0);
    CHECK(realpath(link, text) && strcmp(text, node) == 0);
    FAILS(readlink(node, text, sizeof text), EINVAL);
    CHECK(stat("/dev/xdma/card0", &other) == 0 && S_ISDIR(other.st_mode));
    FAILS(stat("/dev/xdma/card1", &other), ENOENT);
    FAILS(stat("/dev/xdma0_user/", &other), ENOTDIR);
    FAILS(stat("/dev/xdma0_user/x", &other), ENOTDIR);
    FAILS(open("/dev/xdma/card0/none", O_RDWR | O_CREAT, 0600), ENOENT);
    /* Creation, removal and renaming are refused, by all names. */
    FAILS(open(node, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    FAILS(open(link, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    FAILS(open(link, O_RDWR | O_NOFOLLOW), ELOOP);
    FAILS(open(node, O_PATH | O_DIRECTORY), ENOTDIR);
    FAILS(open("/dev/xdma", O_RDWR), EISDIR);
    FAILS(mkdir(node, 0700), EEXIST);
    FAILS(mknod(node, S_IFIFO | 0600, 0), EEXIST);
    FAILS(symlink("x", node), EEXIST);
    FAILS(unlink(node), EPERM);
    FAILS(rename(node, "/tmp/x"), EPERM);
    FAILS(rename("/dev/null", node), EPERM);
    FAILS(rmdir("/dev/xdma"), EPERM);
    FAILS(chdir(node), ENOTDIR);
    FAILS(execl(node, node, NULL), EACCES);
    FAILS(truncate(node, 1), EINVAL);
    FAILS(setxattr(node, "user.x", "y", 1, 0), EPERM);
    FAILS(getxattr(node, "user.x", text, 1), ENODATA);
    CHECK(listxattr(node, NULL, 0) == 0 && statfs(node, &system) == 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/dev/xdma0_user"};
    FAILS(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address), EADDRINUSE);
    /* Mode, owner and times are kept; also of events, which programs open as pipes. */
    const char *kept[] = {node, "/dev/xdma0_events_1"};
    struct timeval times[2] = {{11, 22}, {33, 44}};
    for (int i = 0; i < 2; i++) {
        CHECK(chmod(kept[i], 0640) == 0 && utimes(kept[i], times) == 0 && chown(kept[i], getuid(), getgid()) == 0);
        int file = opened(kept[i], O_RDONLY);
        CHECK(fstat(file, &status) == 0 && stat(kept[i], &other) == 0 && memcmp(&status, &other, sizeof status) == 0);
        CHECK(status.st_mode == (S_IFCHR | 0640) && status.st_mtime == 33 && status.st_uid == getuid());
    }
    /* Flags that no call knows. */
    FAILS(syscall(SYS_faccessat2, AT_FDCWD, node, R_OK, 0x8000), EINVAL);
    FAILS(access(node, 8), EINVAL);
    FAILS(fstatat(AT_FDCWD, node, &status, 0x8000), EINVAL);
    FAILS(syscall(SYS_statx, AT_FDCWD, node, 0, 0x80000000, text), EINVAL);
    FAILS(syscall(SYS_utimensat, AT_FDCWD, node, NULL, 0x8000), EINVAL);
    uint64_t how[4] = {O_RDWR, 0, 0, 0};
    CHECK(syscall(SYS_openat2, AT_FDCWD, node, how, 24) >= 0);
    FAILS(syscall(SYS_openat2, AT_FDCWD, node, how, 8), EINVAL);
    how[0] |= (uint64_t)1 << 40;
    FAILS(syscall(SYS_openat2, AT_FDCWD, node, how, 24), EINVAL);
    how[0] = O_RDWR, how[1] = 0600;
    FAILS(syscall(SYS_openat2, AT_FDCWD, node, how, 24), EINVAL);
    how[1] = 0, how[2] = 0x08 /* RESOLVE_BENEATH */;
    FAILS(syscall(SYS_openat2, AT_FDCWD, node, how, 24), EXDEV);
    how[2] = 0x04 /* RESOLVE_NO_SYMLINKS */;
    CHECK(syscall(SYS_openat2, AT_FDCWD, node, how, 24) >= 0);
    FAILS(syscall(SYS_openat2, AT_FDCWD, link, how, 24), ELOOP);
    how[2] = 0x20 /* RESOLVE_CACHED */;
    FAILS(syscall(SYS_openat2, AT_FDCWD, node, how, 24), EAGAIN);
    for (int i = 0; i < 64; i++) {
        uint64_t bit = (uint64_t)1 << i;
        same_as_other_device((uint64_t[]){O_RDWR | bit, 0, 0}, 24);
        same_as_other_device((uint64_t[]){O_PATH | bit, 0, 0}, 24);
        same_as_other_device((uint64_t[]){O_RDWR | O_CREAT, bit, 0}, 24);
        same_as_other_device((uint64_t[]){O_RDWR, 0, i < 6 ? 0 : bit}, 24);
        same_as_other_device((uint64_t[]){O_RDWR, 0, 0, i >= 32}, (size_t)i % 32 + 1);
    }
    uint64_t zeros[1024] = {0};
    for (size_t size = 4095; size <= 4097; size++)
        same_as_other_device(zeros, size);
    int file = opened(node, O_RDWR);
    struct iovec part = {text, 4};
    CHECK(preadv2(file, &part, 1, 0, RWF_SYNC) == 4);
    FAILS(preadv2(file, &part, 1, 0, RWF_NOWAIT), EOPNOTSUPP);
    FAILS(preadv2(file, &part, 1, 0, 1 << 20), EOPNOTSUPP);
    FAILS(pread(file, text, 4, -4), EINVAL);
    FAILS(pwrite(file, text, 4, INT64_MIN), EINVAL);
    FAILS(lseek(file, 0, 9), EINVAL);
    FAILS(lseek(file, -1, SEEK_SET), EINVAL);
    CHECK(lseek(file, 1, SEEK_END) == (off_t)1 << 32);
    /* A private mapping would keep what is written to it from the card. */
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) == MAP_FAILED && errno == EINVAL);
    FAILS(fsetxattr(file, "user.x", "y", 1, 0), EPERM);
}

/* The names in a folder, as one text. */
static void listed(DIR *folder, char *text, size_t size)
{
    *text = 0;
    CHECK(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strlen(text) + strlen(entry->d_name) + 2 < size && (strncmp(entry->d_name, "xdma", 4) == 0 || size < 4000))
            strcat(strcat(text, entry->d_name), " ");
    closedir(folder);
}

static void folders(void)
{
    char text[4000], others[3000];
    listed(opendir("/dev"), text, sizeof text);
    CHECK(strstr(text, "xdma ") && strstr(text, "xdma0_user ") && strstr(text, "xdma0_c2h_3 ") && strstr(text, "xdma0_events_15 "));
    listed(opendir("/dev/xdma"), others, sizeof others);
    CHECK(strcmp(others, ". .. card0 ") == 0);
    listed(opendir("/dev/xdma/card0"), others, sizeof others);
    CHECK(strstr(others, " user ") && strstr(others, " h2c3 ") && strstr(others, " events0 "));
    /* From descriptors of folders, and back. */
    int card = opened("/dev/xdma/card0", O_RDONLY | O_DIRECTORY), dev = opened("/dev", O_PATH);
    CHECK(openat(card, "user", O_RDWR) >= 0 && openat(card, "../card0/../../xdma0_user", O_RDWR) >= 0);
    CHECK(openat(dev, "xdma/card0/user", O_RDWR) >= 0);
    FAILS(openat(card, "../../null", O_RDWR), ENOENT);
    FAILS(openat(card, "new", O_RDWR | O_CREAT, 0600), ENOENT);
    FAILS(mkdirat(card, "new", 0700), ENOENT);
    CHECK(fchdir(card) == 0 && opened("user", O_RDWR) >= 0 && opened("../card0/h2c0", O_RDWR) >= 0);
    struct stat status, above;
    /* As `ls -la /dev/xdma` asks for it. */
    CHECK(lstat("/dev", &above) == 0 && lstat("/dev/xdma/..", &status) == 0 && status.st_ino == above.st_ino);
    CHECK(status.st_mode == above.st_mode && status.st_nlink == above.st_nlink && fstatat(card, "../..", &status, 0) == 0);
    FAILS(mkdir("/dev/xdma/..", 0700), EEXIST);
    CHECK(fstatat(card, "", &status, AT_EMPTY_PATH) == 0 && S_ISDIR(status.st_mode));
    /* A memory file of the program's own with a device file's name is an ordinary one. */
    int own = memfd_create("xdma0_user", 0);
    CHECK(write(own, "own", 3) == 3 && pread(own, text, 4, 0) == 3 && memcmp(text, "own", 3) == 0);
}

static volatile int handled, to;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void alarm_soon(void)
{
    struct itimerval soon = {{0, 0}, {0, 50000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

/* The first signal's handler lets the call go on, the second one's ends it. */
static void on_first(int number)
{
    on_signal(number);
    handle(SIGALRM, on_signal, 0);
    alarm_soon();
}

static void on_send(int number)
{
    on_signal(number);
    CHECK(write(to, "packet", 6) == 6);
}

static void *read_packet(void *file)
{
    char packet[8];
    return (void *)(intptr_t)read(*(int *)file, packet, sizeof packet);
}

/* Reads that wait, on a card with streams. */
static void interrupted(void)
{
    char packet[64];
    int from = opened("/dev/xdma0_c2h_0", O_RDWR), events = opened("/dev/xdma0_events_2", O_RDONLY), waits[] = {from, events};
    to = opened("/dev/xdma0_h2c_0", O_RDWR);
    for (int i = 0; i < 2; i++) {
        handled = 0;
        handle(SIGALRM, on_first, SA_RESTART);
        alarm_soon();
        FAILS(read(waits[i], packet, i ? 4 : sizeof packet), EINTR);
        CHECK(handled == 2);
    }
    /* The handler's own packet ends the restarted read. */
    handle(SIGALRM, on_send, SA_RESTART);
    alarm_soon();
    CHECK(read(from, packet, sizeof packet) == 6 && memcmp(packet, "packet", 6) == 0);
    /* A second reader waits for the first one, not for its packet. */
    pthread_t reader;
    void *length;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    handle(SIGALRM, on_signal, 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && pthread_create(&reader, NULL, read_packet, &from) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    alarm_soon();
    FAILS(read(from, packet, sizeof packet), EINTR);
    CHECK(write(to, "second", 6) == 6 && pthread_join(reader, &length) == 0 && (intptr_t)length == 6);
}

/* Readers that are killed take no packet with them. */
static void killed(void)
{
    char packet[64];
    int from = opened("/dev/xdma0_c2h_0", O_RDWR), ready[2];
    to = opened("/dev/xdma0_h2c_0", O_RDWR);
    CHECK(pipe(ready) == 0);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(write(ready[1], "x", 1) == 1);
            _exit(read(from, packet, sizeof packet) > 0 ? 7 : 8);
        }
        int status;
        CHECK(read(ready[0], packet, 1) == 1);
        usleep((useconds_t)round * 1000);
        /* In every other round the packet arrives while the reader is about to end. */
        int ends_first = round % 2;
        CHECK(kill(child, SIGKILL) == 0 && (!ends_first || waitpid(child, &status, 0) == child));
        CHECK(write(to, "packet", 6) == 6 && (ends_first || waitpid(child, &status, 0) == child) && WIFSIGNALED(status));
        CHECK(read(from, packet, sizeof packet) == 6 && memcmp(packet, "packet", 6) == 0);
    }
    /* A buffer that cannot be written leaves the packet to the next read. */
    void *volatile nowhere = (void *)16;
    CHECK(write(to, "packet", 6) == 6);
    FAILS(read(from, nowhere, 64), EFAULT);
    struct iovec parts[2] = {{packet, 2}, {nowhere, 64}};
    CHECK(readv(from, parts, 2) == 2 && read(from, packet + 2, 60) == 4 && memcmp(packet, "packet", 6) == 0);
}

static aio_context_t context;

static void *reap(void *events)
{
    return (void *)syscall(SYS_io_getevents, context, 1, 8, events, NULL);
}

/* A thread that waits for events before there are any, and device files beside ordinary ones. */
static void asynchronous(void)
{
    char bytes[64], own[64] = "own";
    int file = opened("/dev/xdma0_h2c_0", O_RDWR), ordinary = memfd_create("ordinary", 0);
    struct io_event events[8];
    struct iocb request = {.aio_fildes = (uint32_t)file, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)bytes, .aio_nbytes = 64, .aio_data = 5};
    struct iocb other = {.aio_fildes = (uint32_t)ordinary, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)own, .aio_nbytes = 3, .aio_data = 6};
    struct iocb *requests[2] = {&request, &other}, *reversed[2] = {&other, &request}, *far[1];
    pthread_t thread;
    void *count;
    memset(bytes, 7, sizeof bytes);
    CHECK(syscall(SYS_io_setup, 8, &context) == 0);
    CHECK(pthread_create(&thread, NULL, reap, events) == 0);
    usleep(20000);
    CHECK(syscall(SYS_io_submit, context, 1, requests) == 1);
    CHECK(pthread_join(thread, &count) == 0 && (intptr_t)count == 1);
    CHECK(events[0].data == 5 && events[0].obj == (uintptr_t)&request && events[0].res == 64);
    CHECK(pread(opened("/dev/xdma0_c2h_0", O_RDWR), own, 64, 0) == 64 && own[63] == 7);
    CHECK(syscall(SYS_io_submit, context, 1, requests + 1) == 1 && syscall(SYS_io_getevents, context, 1, 8, events, NULL) == 1);
    CHECK(events[0].data == 6 && events[0].res == 3);
    /* Both kinds in one list, in any order, with offsets and lists of buffers. */
    char first[3000], second[3000], back[6000];
    struct iovec buffers[2] = {{first, sizeof first}, {second, sizeof second}}, into = {back, sizeof back};
    struct iocb list = {.aio_fildes = (uint32_t)ordinary, .aio_lio_opcode = IOCB_CMD_PWRITEV, .aio_buf = (uintptr_t)buffers, .aio_nbytes = 2, .aio_offset = 5, .aio_data = 7};
    struct iocb gather = {.aio_fildes = (uint32_t)ordinary, .aio_lio_opcode = IOCB_CMD_PREADV, .aio_buf = (uintptr_t)&into, .aio_nbytes = 1, .aio_offset = 5, .aio_data = 8};
    struct iocb sync = {.aio_fildes = (uint32_t)ordinary, .aio_lio_opcode = IOCB_CMD_FSYNC, .aio_data = 9};
    struct iocb *mixed[5] = {&list, &request, &gather, &sync, &other};
    memset(first, 1, sizeof first);
    memset(second, 2, sizeof second);
    CHECK(syscall(SYS_io_submit, context, 2, reversed) == 2 && syscall(SYS_io_getevents, context, 2, 8, events, NULL) == 2);
    CHECK(events[0].data == 6 && events[0].res == 3 && events[1].data == 5 && events[1].res == 64);
    CHECK(syscall(SYS_io_submit, context, 5, mixed) == 5 && syscall(SYS_io_getevents, context, 5, 8, events, NULL) == 5);
    CHECK(events[0].res == 6000 && events[1].res == 64 && events[2].data == 8 && events[2].res == 6000 && events[3].res == 0 && events[4].res == 3);
    CHECK(memcmp(back, first, sizeof first) == 0 && memcmp(back + sizeof first, second, sizeof second) == 0);
    /* A file that is not open for the access, a number that is none, and a pipe end the list. */
    struct iocb wrong[3] = {other, other, other};
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    wrong[0].aio_fildes = (uint32_t)open("/proc/self/exe", O_RDONLY);
    wrong[1].aio_fildes = 9999;
    wrong[2].aio_fildes = (uint32_t)pipes[1];
    for (int at = 0; at < 3; at++) {
        struct iocb *before[2] = {&wrong[at], &request}, *behind[2] = {&request, &wrong[at]};
        FAILS(syscall(SYS_io_submit, context, 2, before), at == 2 ? EINVAL : EBADF);
        CHECK(syscall(SYS_io_submit, context, 2, behind) == 1 && syscall(SYS_io_getevents, context, 1, 8, events, NULL) == 1);
    }
    /* A failure is reported by the event. */
    struct iocb beyond = request;
    beyond.aio_offset = (int64_t)1 << 60;
    far[0] = &beyond;
    CHECK(syscall(SYS_io_submit, context, 1, far) == 1 && syscall(SYS_io_getevents, context, 1, 8, events, NULL) == 1);
    CHECK(events[0].res == -EIO);
    struct timespec none = {0, 0};
    CHECK(syscall(SYS_io_getevents, context, 1, 8, events, &none) == 0);
    FAILS(syscall(SYS_io_submit, (aio_context_t)(uintptr_t)own, 1, requests), EINVAL);
    CHECK(syscall(SYS_io_destroy, context) == 0);
}

/* Result of a call on a descriptor: a value, or the negative error. */
static long result_of(int call, int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat status;
    char bytes[64];
    int on = 1;
    long result = -1;
    switch (call) {
    case 0: result = fcntl(file, F_GETFL); break;
    case 1: result = flock(file, LOCK_SH | LOCK_NB); break;
    case 2: result = flock(file, LOCK_UN); break;
    case 3: result = fcntl(file, F_SETFL, O_NONBLOCK | O_APPEND); break;
    case 4: result = fcntl(file, F_GETFL); break;
    case 5: result = fcntl(file, F_SETFL, O_DIRECT); break;
    case 6: result = fcntl(file, F_SETFL, 0); break;
    case 7: result = fcntl(file, F_GETFL); break;
    case 8: result = fcntl(file, F_SETFD, FD_CLOEXEC); break;
    case 9: result = fcntl(file, F_GETFD); break;
    case 10: result = fcntl(file, F_SETLK, &lock); break;
    case 11: result = fcntl(file, F_SETLEASE, F_RDLCK); break;
    case 12: result = fcntl(file, F_GET_SEALS); break;
    case 13: result = fcntl(file, F_ADD_SEALS, F_SEAL_WRITE); break;
    case 14: result = fcntl(file, F_GETPIPE_SZ); break;
    case 15: result = ioctl(file, FIONBIO, &on); break;
    case 16: result = ioctl(file, FIOCLEX); break;
    case 17: result = fchmod(file, 0666); break;
    case 18: result = fchown(file, getuid(), getgid()); break;
    case 19: result = fstat(file, &status); break;
    case 20: result = fchdir(file); break;
    case 21: result = getdents64(file, bytes, sizeof bytes); break;
    case 22: result = fcntl(file, 9999); break;
    default: result = close(fcntl(file, F_DUPFD_CLOEXEC, 100));
    }
    return result < 0 ? -errno : result;
}

/* Descriptors are those of a character device, also of files that were opened only as names. */
static void descriptors(void)
{
    static const int flags[] = {O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_CREAT | O_TRUNC, O_RDWR | O_APPEND | O_NONBLOCK | O_SYNC, O_PATH, O_PATH | O_CLOEXEC, O_PATH | O_RDWR};
    for (size_t at = 0; at < sizeof flags / sizeof *flags; at++) {
        int device = open("/dev/xdma0_h2c_0", flags[at], 0600), model = open("/dev/null", flags[at], 0600);
        CHECK(device >= 0 && model >= 0);
        for (int call = 0; call <= 23; call++) {
            /* Not with the permissions of the real one. */
            long expected = (call == 17 || call == 18) && !(flags[at] & O_PATH) ? 0 : result_of(call, model);
            long result = result_of(call, device);
            if (result != expected) {
                fprintf(stderr, "flags %#o, call %d: %ld instead of %ld\n", flags[at], call, result, expected);
                exit(1);
            }
        }
    }
    /* Flags do not change what the position does: it advances for a file that may have to be created. */
    char bytes[64] = {0};
    int file = open("/dev/xdma0_h2c_0", O_RDWR | O_CREAT, 0600);
    CHECK(fcntl(file, F_SETFL, O_NONBLOCK) == 0 && write(file, bytes, 64) == 64 && lseek(file, 0, SEEK_CUR) == 64);
    int event = opened("/dev/xdma0_events_1", O_RDONLY), folder = opened("/dev/xdma", O_PATH | O_DIRECTORY), real = opened("/dev", O_PATH | O_DIRECTORY);
    FAILS(fcntl(event, F_GETPIPE_SZ), EBADF);
    CHECK(fcntl(folder, F_GETFL) == fcntl(real, F_GETFL) && openat(folder, "card0", O_PATH) >= 0 && fchdir(folder) == 0);
    FAILS(flock(folder, LOCK_SH), EBADF);
    FAILS(getdents64(folder, bytes, sizeof bytes), EBADF);
}

/* After munmap, other registers and files at the same address. */
static void reused(void)
{
    int files[] = {opened("/dev/xdma0_control", O_RDWR), opened("/dev/xdma0_user", O_RDWR)};
    uint32_t value;
    void *at = NULL;
    for (int round = 0; round < 12; round++) {
        int file = files[round % 2];
        off_t offset = round / 2 % 3 * 4096;
        volatile uint32_t *mapped = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), file, offset);
        CHECK(mapped != MAP_FAILED && pread(file, &value, 4, offset) == 4 && mapped[0] == value);
        at = (void *)mapped;
        if (round % 4 == 3)
            CHECK(munmap(at, 4096) == 0);
    }
    /* The low half and one byte of a plain register. */
    volatile uint8_t *user = mmap(NULL, 0x4000, PROT_READ | PROT_WRITE, MAP_SHARED, files[1], 0);
    CHECK(user != MAP_FAILED);
    *(volatile uint32_t *)(user + 0x2004) = 0x44332211;
    user[0x2005] = 0x55;
    *(volatile uint16_t *)(user + 0x2006) = 0x7766;
    CHECK(*(volatile uint32_t *)(user + 0x2004) == 0x77665511);
    /* A program that has ended is no reason for an error line, and its children keep the mapping. */
    pid_t child = fork();
    if (child == 0)
        for (;;)
            (void)*(volatile uint32_t *)(user + 0x2004);
    usleep(20000);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

#ifdef __x86_64__
static long call_32(long number, long first, long second, long third)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

static sigjmp_buf escape;

static void on_fault(int number)
{
    (void)number;
    siglongjmp(escape, 1);
}

/* Calls of 32-bit programs. Status 77: the kernel has none. */
static void narrow(void)
{
    int file = opened("/dev/xdma0_h2c_0", O_RDWR);
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    handle(SIGSEGV, on_fault, 0);
    if (sigsetjmp(escape, 1))
        exit(77);
    CHECK(call_32(20, 0, 0, 0) == getpid());
    CHECK(call_32(4, file, (long)low, 4) == -EOPNOTSUPP);
    CHECK(call_32(3, file, (long)low, 4) == -EOPNOTSUPP);
    strcpy(low, "/dev/xdma0_user");
    CHECK(call_32(5, (long)low, O_RDWR, 0) == -EOPNOTSUPP);
    strcpy(low, "/dev/null");
    int null = (int)call_32(5, (long)low, O_RDWR, 0);
    CHECK(null >= 0 && call_32(4, null, (long)low, 4) == 4);
    FAILS(syscall(0x40000000 | SYS_read, file, low, 4), ENOSYS);
}
#endif

/* A process that hides itself. Without privileges, that is refused; afterwards nothing has changed. */
static void hidden(void)
{
    char bytes[4];
    int file = opened("/dev/xdma0_c2h_0", O_RDWR);
    FAILS(prctl(PR_SET_DUMPABLE, 0), EPERM);
    CHECK(prctl(PR_GET_DUMPABLE) == 1 && pread(file, bytes, 4, 0) == 4);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"names", names}, {"folders", folders}, {"interrupted", interrupted}, {"killed", killed}, {"asynchronous", asynchronous}, {"descriptors", descriptors},
        {"reused", reused}, {"hidden", hidden},
#ifdef __x86_64__
        {"narrow", narrow},
#endif
    };
    for (size_t i = 0; count == 2 && i < sizeof tests / sizeof *tests; i++)
        if (strcmp(arguments[1], tests[i].name) == 0) {
            tests[i].run();
            return 0;
        }
    fprintf(stderr, "no such test\n");
    return 2;
}
