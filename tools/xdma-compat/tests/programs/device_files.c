/* Uses the device files of a card in all ways that a program can. The argument names the test. Knows nothing of the simulated card. */
#include "check.h"
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(seed + i * 131 + (i >> 8) * 17);
}

/* Ends a child: its status must be 0. */
static void ended(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void memory(void)
{
    enum { LENGTH = 3 << 20 };
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR);
    unsigned char *out = malloc(LENGTH + 64), *in = malloc(LENGTH + 64);
    for (size_t length = 1; length <= LENGTH; length = length * 5 + 3) {
        fill(out, length, (unsigned)length);
        memset(in, 0, length);
        CHECK(pwrite(to, out + 1, length, 0x1003) == (ssize_t)length);
        CHECK(pread(from, in + 3, length, 0x1003) == (ssize_t)length);
        CHECK(memcmp(out + 1, in + 3, length) == 0);
    }
    struct iovec parts[3] = {{out, 100}, {out + 100, 0}, {out + 100, 5000}};
    CHECK(pwritev(to, parts, 3, 0x40) == 5100);
    struct iovec back[2] = {{in, 4000}, {in + 4000, 1100}};
    CHECK(preadv(from, back, 2, 0x40) == 5100 && memcmp(in, out, 5100) == 0);
    /* The position counts and stays, as with the vendor's driver. */
    CHECK(lseek(to, 0x800, SEEK_SET) == 0x800 && writev(to, parts, 1) == 100 && lseek(to, 0, SEEK_CUR) == 0x800);
    CHECK(lseek(from, 0x7f0, SEEK_SET) == 0x7f0 && lseek(from, 0x10, SEEK_CUR) == 0x800);
    CHECK(read(from, in, 100) == 100 && memcmp(in, out, 100) == 0);
    FAILS(lseek(from, -1, SEEK_SET), EINVAL);
    /* Wrong direction, memory, card address. */
    void *volatile nowhere = (void *)16;
    FAILS(read(to, in, 4), EINVAL);
    FAILS(write(from, out, 4), EINVAL);
    FAILS(pwrite(to, nowhere, 4096, 0), EFAULT);
    FAILS(pread(from, nowhere, 4096, 0), EFAULT);
    FAILS(pread(from, in, 4096, (off_t)1 << 60), EIO);
    CHECK(pwrite(to, out, 0, 0) == 0);
    /* After a failure the channel works. */
    CHECK(pwrite(to, out, 64, 0) == 64);
    /* The kernel's answers for a character device. */
    struct stat status;
    CHECK(fstat(to, &status) == 0 && S_ISCHR(status.st_mode));
    CHECK(stat("/dev/xdma0_h2c_0", &status) == 0 && S_ISCHR(status.st_mode));
    CHECK(access("/dev/xdma0_c2h_0", R_OK | W_OK) == 0);
    FAILS(access("/dev/xdma0_c2h_9", F_OK), ENOENT);
    FAILS(open("/dev/xdma1_h2c_0", O_RDWR), ENOENT);
    FAILS(ftruncate(to, 10), EINVAL);
    FAILS(sendfile(to, from, NULL, 10), EINVAL);
    FAILS(syscall(SYS_io_uring_setup, 1, in), ENOSYS);
    FAILS(ioctl(to, TCGETS, in), ENOTTY);
    /* A relative path, and read-only files. */
    CHECK(chdir("/dev") == 0);
    int one = opened("./xdma0_c2h_0", O_RDONLY | O_CLOEXEC);
    CHECK(fcntl(one, F_GETFD) == FD_CLOEXEC);
    FAILS(write(one, out, 4), EBADF);
    CHECK(read(one, in, 64) == 64 && lseek(one, 0, SEEK_CUR) == 64);
    FILE *stream = fopen("/dev/xdma0_c2h_0", "r");
    CHECK(stream && fread(in, 1, 10000, stream) == 10000 && fclose(stream) == 0);
    free(out);
    free(in);
}

static void inheritance(void)
{
    int to = opened("/dev/xdma0_h2c_1", O_RDWR);
    CHECK(dup2(to, 77) == 77 && close(to) == 0 && pwrite(77, "dup2", 4, 0) == 4);
    pid_t child = fork();
    if (child == 0)
        _exit(pwrite(77, "fork", 4, 16) == 4 ? 0 : 1);
    ended(child);
    child = fork();
    if (child == 0) {
        execl(self, self, "inherited", NULL);
        _exit(1);
    }
    ended(child);
    char in[37] = {0};
    CHECK(pread(opened("/dev/xdma0_c2h_1", O_RDONLY), in, 36, 0) == 36);
    CHECK(memcmp(in, "dup2", 4) == 0 && memcmp(in + 16, "fork", 4) == 0 && memcmp(in + 32, "exec", 4) == 0);
}

/* Descriptors that have moved data, and are of another file then. */
static void replaced(void)
{
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR);
    int ordinary = memfd_create("ordinary", 0), other = opened("/dev/xdma0_h2c_1", O_RDWR);
    char out[64] = "replaced", in[64];
    CHECK(pwrite(to, out, 64, 0) == 64);
    CHECK(dup2(ordinary, to) == to && pwrite(to, out, 8, 100) == 8);
    CHECK(pread(ordinary, in, 8, 100) == 8 && memcmp(in, out, 8) == 0);
    CHECK(dup2(from, to) == to);
    FAILS(pwrite(to, out, 64, 0), EINVAL);
    CHECK(pread(to, in, 64, 0) == 64 && memcmp(in, out, 64) == 0);
    CHECK(dup2(other, to) == to && lseek(other, 0x80, SEEK_SET) == 0x80 && write(to, out + 1, 63) == 63);
    CHECK(pread(from, in, 63, 0x80) == 63 && memcmp(in, out + 1, 63) == 0);
    close(to);
    FAILS(pwrite(to, out, 64, 0), EBADF);
    /* A reopened file has another position and mode. */
    CHECK(open("/dev/xdma0_h2c_0", O_WRONLY) == to && write(to, out, 64) == 64 && lseek(to, 0, SEEK_CUR) == 64);
    FAILS(read(to, in, 64), EBADF);
    /* A lock ends with the program's last descriptor. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    for (int kind = 0; kind < 2; kind++) {
        int first = opened("/dev/xdma0_h2c_0", O_RDWR), second = opened("/dev/xdma0_h2c_0", O_RDWR);
        CHECK(pwrite(first, out, 64, 0) == 64 && pwrite(second, out, 64, 0) == 64);
        CHECK((kind ? fcntl(first, F_OFD_SETLK, &lock) : flock(first, LOCK_EX)) == 0);
        CHECK(pwrite(first, out, 64, 0) == 64);
        FAILS(kind ? fcntl(second, F_OFD_SETLK, &lock) : flock(second, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        close(first);
        /* Waits: a child of another test in the supervisor's process has copies of its descriptors until it calls exec. */
        CHECK((kind ? fcntl(second, F_OFD_SETLKW, &lock) : flock(second, LOCK_EX)) == 0);
        close(second);
    }
}

/* Memory of which a part cannot be accessed: the parts before it are moved. */
static void partial(void)
{
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), slot = 256 << 10;
    char *memory = mmap(NULL, 2 * slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + slot + page, page, PROT_NONE) == 0);
    memset(memory, 0x5a, slot + page);
    struct iovec parts[4] = {{memory, 100}, {memory + page, page}, {memory + slot, 2 * page}, {memory, 100}};
    CHECK(pwritev(to, parts, 4, 0) == 100 + (ssize_t)page);
    CHECK(preadv(from, parts, 4, 0) == 100 + (ssize_t)page);
    FAILS(pwritev(to, parts + 2, 2, 0), EFAULT);
    FAILS(preadv(from, parts + 2, 2, 0), EFAULT);
    /* Of one part, what is moved at once. */
    CHECK(pwrite(to, memory, 2 * slot, 0) == (ssize_t)slot);
    CHECK(pread(from, memory, 2 * slot, 0) == (ssize_t)slot);
    /* Parts that are divided between slots, and more parts than one. */
    struct iovec many[1024];
    for (int i = 0; i < 1024; i++)
        many[i] = (struct iovec){memory + i * 37 % 4096, i % 3 * 251};
    many[7].iov_len = slot;
    ssize_t length = 0;
    for (int i = 0; i < 1024; i++)
        length += (ssize_t)many[i].iov_len;
    fill((unsigned char *)memory, slot, 5);
    char *expected = malloc((size_t)length), *in = malloc((size_t)length);
    for (ssize_t i = 0, at = 0; i < 1024; at += (ssize_t)many[i++].iov_len)
        memcpy(expected + at, many[i].iov_base, many[i].iov_len);
    CHECK(pwritev(to, many, 1024, 0x100) == length && pread(from, in, (size_t)length, 0x100) == length);
    CHECK(memcmp(in, expected, (size_t)length) == 0);
    free(expected);
    free(in);
}

/* Both processes use the files that were opened before the fork, at the same time. */
static void forked(void)
{
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR);
    int control = opened("/dev/xdma0_control", O_RDWR);
    pid_t child = fork();
    char out[5000], in[sizeof out];
    off_t place = child == 0 ? 0x10000 : 0x20000;
    for (int round = 0; round < 20; round++) {
        uint32_t identifier;
        memset(out, child == 0 ? round : 0x80 + round, sizeof out);
        CHECK(pwrite(to, out, sizeof out, place) == sizeof out);
        CHECK(pread(from, in, sizeof in, place) == sizeof in && memcmp(in, out, sizeof in) == 0);
        CHECK(pread(control, &identifier, 4, 0) == 4 && identifier >> 20 == 0x1fc);
    }
    if (child == 0)
        exit(0);
    ended(child);
    /* The end of the child has closed nothing. A file position that advances is that of both. */
    CHECK(pread(from, in, 100, 0x10000) == 100 && in[0] == 19);
    int only = opened("/dev/xdma0_c2h_0", O_RDONLY);
    CHECK(lseek(only, 0x10000, SEEK_SET) == 0x10000 && read(only, in, 100) == 100);
    child = fork();
    if (child == 0)
        exit(read(only, in, 100) == 100 ? 0 : 1);
    ended(child);
    CHECK(lseek(only, 0, SEEK_CUR) == 0x10000 + 200);
}

static void inherited(void)
{
    CHECK(pwrite(77, "exec", 4, 32) == 4);
}

static volatile sig_atomic_t bus_errors;
static sigjmp_buf escape;

static void on_bus_error(int signal)
{
    (void)signal;
    bus_errors++;
    siglongjmp(escape, 1);
}

static volatile uint32_t *registers;

static void *read_registers(void *seen)
{
    for (int i = 0; i < 200; i++)
        if (registers[0] != *(uint32_t *)seen)
            return (void *)1;
    return NULL;
}

static void registers_mapped(void)
{
    int control = opened("/dev/xdma0_control", O_RDWR | O_SYNC);
    /* By read and write: one word per call. */
    uint32_t identifier, word;
    unsigned char bytes[64];
    CHECK(pread(control, &identifier, 4, 0) == 4 && identifier >> 20 == 0x1fc);
    CHECK(read(control, bytes, 64) == 4 && lseek(control, 0, SEEK_CUR) == 4);
    FAILS(pread(control, &word, 4, 2), EPROTO);
    word = 6;
    CHECK(pwrite(control, &word, 4, 0x90) == 4 && pread(control, &word, 4, 0x90) == 4 && word == 6);
    CHECK(pread(control, &word, 4, 1 << 30) == 0);
    CHECK(mmap(NULL, 1 << 30, PROT_READ, MAP_SHARED, control, 0) == MAP_FAILED && errno == EINVAL);
    int channel = opened("/dev/xdma0_h2c_0", O_RDWR);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, channel, 0) == MAP_FAILED && errno == ENODEV);

    /* The program's own handler gets its own faults, before and after. */
    struct sigaction action = {.sa_handler = on_bus_error};
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    int empty = memfd_create("empty", 0);
    volatile char *nothing = mmap(NULL, 4096, PROT_READ, MAP_SHARED, empty, 0);
    CHECK(nothing != MAP_FAILED);
    if (sigsetjmp(escape, 1) == 0)
        (void)*nothing;
    CHECK(bus_errors == 1);

    registers = mmap(NULL, 0x8000, PROT_READ | PROT_WRITE, MAP_SHARED, control, 0);
    CHECK(registers != MAP_FAILED);
    close(control);
    volatile unsigned char *byte = (volatile unsigned char *)registers;
    CHECK(registers[0] == identifier && byte[2] == (unsigned char)(identifier >> 16));
    CHECK(*(volatile uint16_t *)&byte[2] == identifier >> 16);
    uint64_t both = (uint64_t)registers[1] << 32 | identifier;
    CHECK(*(volatile uint64_t *)registers == both);
    registers[0x90 / 4] = 0x16;
    CHECK(registers[0x90 / 4] == 0x16);
    registers[0x90 / 4] |= 0x40;
    CHECK(registers[0x90 / 4] == 0x56);
    registers[0x94 / 4] = 8;
    CHECK(registers[0x90 / 4] == 0x5e);
    /* Instructions with the operand in memory, and vectors. */
    unsigned char below;
    __asm__ volatile("cmpl %2, %1\n\tsetb %0" : "=q"(below) : "m"(registers[0]), "r"(identifier + 1));
    CHECK(below == 1);
    uint32_t sum = 5;
    __asm__ volatile("addl %1, %0" : "+r"(sum) : "m"(registers[0x90 / 4]));
    CHECK(sum == 0x5e + 5);
    uint64_t own = (uint64_t)(uintptr_t)registers;
    __asm__ volatile("movl (%0), %k0" : "+r"(own));
    CHECK(own == identifier);
    own = (uint64_t)(uintptr_t)registers + 2;
    uint64_t expected = (own & ~(uint64_t)0xff) | (unsigned char)(identifier >> 16);
    __asm__ volatile("movb (%0), %b0" : "+q"(own));
    CHECK(own == expected);
    uint64_t index = 0x90 / 4;
    __asm__ volatile("movl (%1,%2,4), %0" : "=r"(word) : "r"(registers), "r"(index) : "memory");
    CHECK(word == 0x5e);
    __asm__ volatile("movdqu (%1), %%xmm3\n\tmovdqu %%xmm3, (%0)" : : "r"(bytes), "r"(registers) : "xmm3", "memory");
    CHECK(memcmp(bytes, &both, 8) == 0);
    memset(bytes, 0, sizeof bytes);
    void *to = bytes;
    const void *from = (const void *)registers;
    uint64_t count = 8;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    CHECK(memcmp(bytes, &both, 8) == 0 && count == 0 && to == bytes + 8);
    to = (void *)&registers[0x90 / 4];
    count = 1;
    __asm__ volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(0x1e) : "memory");
    CHECK(registers[0x90 / 4] == 0x1e);
    /* From threads that existed before the mapping or not, and from a child. */
    pthread_t threads[4];
    void *failed;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, read_registers, &identifier) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(registers[0] == identifier ? 0 : 1);
    ended(child);
    child = fork();
    if (child == 0) {
        execl(self, self, "memory", NULL);
        _exit(1);
    }
    ended(child);
    if (sigsetjmp(escape, 1) == 0)
        (void)*nothing;
    CHECK(bus_errors == 2);
    CHECK(munmap((void *)registers, 0x8000) == 0);
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* The line is raised again and again from outside. */
static void events(void)
{
    int file = opened("/dev/xdma0_events_2", O_RDONLY);
    uint32_t value = 0;
    for (int i = 0; i < 3; i++) {
        struct pollfd ready = {.fd = file, .events = POLLIN};
        CHECK(poll(&ready, 1, 20000) == 1 && ready.revents == POLLIN);
        CHECK(read(file, &value, 4) == 4 && value == 1);
    }
    FAILS(read(file, &value, 2), EPROTO);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(file, &set);
    struct timeval limit = {20, 0};
    CHECK(select(file + 1, &set, NULL, NULL, &limit) == 1);
    int queue = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, file, &event) == 0 && epoll_wait(queue, &event, 1, 20000) == 1);
    CHECK(read(file, &value, 4) == 4);
    /* Blocking, without poll. */
    CHECK(read(file, &value, 4) == 4 && value == 1);
}

/* No interrupt comes. */
static void no_events(void)
{
    int file = opened("/dev/xdma0_events_3", O_RDONLY);
    uint32_t value;
    struct pollfd ready = {.fd = file, .events = POLLIN};
    CHECK(poll(&ready, 1, 0) == 0);
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    ualarm(20000, 0);
    FAILS(read(file, &value, 4), EINTR);
    CHECK(fcntl(file, F_SETFL, O_NONBLOCK) == 0);
    FAILS(read(file, &value, 4), EAGAIN);
    FAILS(lseek(file, 0, SEEK_SET), ESPIPE);
}

static void asynchronous(void)
{
    enum { LENGTH = 70000 };
    int to = opened("/dev/xdma0_h2c_2", O_RDWR), from = opened("/dev/xdma0_c2h_2", O_RDWR);
    unsigned char *out = malloc(LENGTH), *in = malloc(LENGTH);
    fill(out, LENGTH, 9);
    aio_context_t context = 0;
    CHECK(syscall(SYS_io_setup, 8, &context) == 0);
    for (int round = 0; round < 3; round++) {
        struct iocb write = {.aio_fildes = (unsigned)to, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)out,
                             .aio_nbytes = LENGTH, .aio_offset = 0x10000 * round, .aio_data = 7};
        struct iocb *list[1] = {&write};
        struct io_event event;
        CHECK(syscall(SYS_io_submit, context, 1, list) == 1);
        CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == LENGTH && event.data == 7);
        memset(in, 0, LENGTH);
        struct iovec parts[2] = {{in, 1000}, {in + 1000, LENGTH - 1000}};
        struct iocb read = {.aio_fildes = (unsigned)from, .aio_lio_opcode = IOCB_CMD_PREADV, .aio_buf = (uintptr_t)parts,
                            .aio_nbytes = 2, .aio_offset = 0x10000 * round, .aio_data = 8};
        list[0] = &read;
        CHECK(syscall(SYS_io_submit, context, 1, list) == 1);
        CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == LENGTH && event.data == 8);
        CHECK(memcmp(in, out, LENGTH) == 0);
    }
    free(out);
    free(in);
}

struct performance { uint32_t version, transfer_size, stopped, iterations; uint64_t clock, data, pending; };
struct aperture { uint64_t at; unsigned aperture; unsigned long buffer, length; int error; unsigned long done; };
struct info { uint32_t magic, command; uint16_t vendor, device, subsystem_vendor, subsystem_device; uint32_t engine, driver;
              uint64_t feature; uint16_t domain; uint8_t bus, dev, func; };

static void controls(void)
{
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR);
    int value = 9;
    CHECK(ioctl(to, _IOR('q', 6, int), &value) == 0 && value >= 1);
    CHECK(ioctl(to, _IOR('q', 5, int), &value) == 0 && value == 0);
    value = 1;
    CHECK(ioctl(to, _IOW('q', 4, int), &value) == 0);
    value = 9;
    CHECK(ioctl(to, _IOR('q', 5, int), &value) == 0 && value == 1);
    unsigned char out[8192], in[8192];
    fill(out, sizeof out, 3);
    CHECK(pwrite(to, out, 4096, 0) == 4096);
    value = 0;
    CHECK(ioctl(to, _IOW('q', 4, int), &value) == 0);
    /* No byte of a long transfer to a constant address has another one. */
    char *zeros = calloc(1, 600 << 10);
    CHECK(pwrite(to, out, 4096, 0x41000) == 4096);
    value = 1;
    CHECK(ioctl(to, _IOW('q', 4, int), &value) == 0 && pwrite(to, zeros, 600 << 10, 0x1000) == 600 << 10);
    value = 0;
    CHECK(ioctl(to, _IOW('q', 4, int), &value) == 0);
    CHECK(pread(from, in, 4096, 0x41000) == 4096 && memcmp(in, out, 4096) == 0);
    free(zeros);
    /* A window of 1 KiB that starts again: it has the last KiB in the end. */
    struct aperture window = {.at = 0x4000, .aperture = 1024, .buffer = (unsigned long)out, .length = sizeof out};
    CHECK(ioctl(to, _IOW('q', 8, struct aperture *), &window) == 0 && window.done == sizeof out && window.error == 0);
    CHECK(pread(from, in, 1024, 0x4000) == 1024 && memcmp(in, out + 7168, 1024) == 0);
    window.buffer = (unsigned long)in;
    CHECK(ioctl(from, _IOW('q', 7, struct aperture *), &window) == 0 && window.done == sizeof in);
    CHECK(memcmp(in, out + 7168, 1024) == 0 && memcmp(in + 7168, out + 7168, 1024) == 0);
    struct performance result = {.version = 1, .transfer_size = 4096};
    FAILS(ioctl(to, _IOW('q', 2, struct performance *), &result), EINVAL);
    CHECK(ioctl(to, _IOW('q', 1, struct performance *), &result) == 0);
    FAILS(ioctl(to, _IOW('q', 1, struct performance *), &result), EBUSY);
    do
        CHECK(ioctl(to, _IOR('q', 3, struct performance *), &result) == 0);
    while (result.iterations < 3);
    CHECK(ioctl(to, _IOW('q', 2, struct performance *), &result) == 0);
    CHECK(result.stopped == 1 && result.clock >= result.data && result.data > 0 && result.transfer_size == 4096);
    FAILS(ioctl(to, _IOW('q', 9, int), &value), ENOTTY);
    int control = opened("/dev/xdma0_control", O_RDWR);
    struct info info = {.magic = 0x586c0c6c};
    CHECK(ioctl(control, _IOWR('x', 1, struct info), &info) == 0 && info.vendor == 0x10ee);
    info.magic = 0;
    FAILS(ioctl(control, _IOWR('x', 1, struct info), &info), ENOTTY);
}

static void *own_region(void *number)
{
    uintptr_t n = (uintptr_t)number;
    char to_path[32], from_path[32];
    snprintf(to_path, sizeof to_path, "/dev/xdma0_h2c_%d", (int)(n % 2));
    snprintf(from_path, sizeof from_path, "/dev/xdma0_c2h_%d", (int)(n / 2 % 2));
    int to = opened(to_path, O_RDWR), from = opened(from_path, O_RDWR);
    unsigned char out[9000], in[9000];
    for (unsigned round = 0; round < 50; round++) {
        size_t length = 1 + (round * 977 + n * 331) % sizeof out;
        fill(out, length, round + (unsigned)n);
        if (pwrite(to, out, length, (off_t)n << 16) != (ssize_t)length
            || pread(from, in, length, (off_t)n << 16) != (ssize_t)length || memcmp(in, out, length) != 0)
            return (void *)1;
    }
    close(to);
    close(from);
    return NULL;
}

static void threads(void)
{
    pthread_t all[8];
    void *failed;
    for (uintptr_t i = 0; i < 8; i++)
        CHECK(pthread_create(&all[i], NULL, own_region, (void *)i) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(all[i], &failed) == 0 && failed == NULL);
}

/* A card whose channels are streams, with a loopback behind them. */
static void streams(void)
{
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR | O_TRUNC);
    unsigned char out[5000], in[8192];
    fill(out, sizeof out, 1);
    CHECK(write(to, out, sizeof out) == sizeof out);
    CHECK(write(to, out, 64) == 64);
    /* A read ends with its packet; a packet that is longer than the buffer is continued. */
    CHECK(read(from, in, 2000) == 2000 && read(from, in + 2000, sizeof in - 2000) == 3000);
    CHECK(memcmp(in, out, sizeof out) == 0);
    CHECK(read(from, in, sizeof in) == 64 && memcmp(in, out, 64) == 0);
}

static void *read_packet(void *file)
{
    unsigned char in[64];
    return (void *)(uintptr_t)(read(*(int *)file, in, sizeof in) == sizeof in);
}

/* Two threads wait for packets of one file, while another thread seeks in it and sends them. */
static void waiting(void)
{
    int to = opened("/dev/xdma0_h2c_0", O_RDWR), from = opened("/dev/xdma0_c2h_0", O_RDWR);
    unsigned char out[64] = {0};
    pthread_t readers[2];
    void *complete;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&readers[i], NULL, read_packet, &from) == 0);
    for (int i = 0; i < 2; i++) {
        int value;
        CHECK(lseek(from, 0, SEEK_SET) == 0 && ioctl(to, _IOR('q', 6, int), &value) == 0);
        CHECK(write(to, out, sizeof out) == sizeof out);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(readers[i], &complete) == 0 && complete);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"memory", memory},         {"inheritance", inheritance},   {"inherited", inherited}, {"forked", forked},
        {"registers", registers_mapped},
        {"events", events},         {"no-events", no_events},       {"asynchronous", asynchronous},
        {"replaced", replaced},     {"partial", partial},
        {"controls", controls},     {"threads", threads},           {"streams", streams}, {"waiting", waiting},
    };
    self = arguments[0];
    alarm(60);
    for (size_t i = 0; count == 2 && i < sizeof tests / sizeof *tests; i++)
        if (strcmp(arguments[1], tests[i].name) == 0) {
            tests[i].run();
            return 0;
        }
    fprintf(stderr, "no such test\n");
    return 2;
}
