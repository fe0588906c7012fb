/* Random system calls and accesses on device files, compared with a model of character devices. Arguments: seed, number of operations.
 *
 * The model: a table of open files (shared by all processes), a table of descriptors and a table of pages (of each process), the bytes of
 * the card's memory, and the values of some registers. Prints the first difference. Knows nothing of the simulated card but these registers:
 * interrupt enable masks of channels that transfer nothing (PG195), and a plain register of the user BAR. Above 600 lines, because one
 * program has the model, and every operation changes it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONTROL, USER, BYPASS, H2C, C2H, EVENT, NODES };
enum { MEMORY = 1 << 16, PAGE = 4096, PAGES = 64, FIRST = 100, FILES = 24, OPENS = 1 << 16, CELLS = 5, MAPPED_CONTROL = 4, MAPPED_USER = 3 };

static const char *const names[NODES] = {"xdma0_control", "xdma0_user", "xdma0_bypass", "xdma0_h2c_0", "xdma0_c2h_1", "xdma0_events_3"};
static const char *const links[NODES] = {"control", "user", "bypass", "h2c0", "c2h1", "events3"};
static const struct { int node; uint32_t at, mask; } cells[CELLS] = {
    {CONTROL, 0x0190, 0x1e}, {CONTROL, 0x0290, 0x1e}, {CONTROL, 0x1090, 0x1e}, {CONTROL, 0x1290, 0x1e}, {USER, 0x2004, 0xffffffff}};

struct open { int node, access, advances, is_path; int64_t position; int lock; };
/* What all processes share. */
static struct shared {
    uint8_t memory[MEMORY];
    uint32_t cell[CELLS], start[NODES][PAGES];
    struct open opens[OPENS];
    int opened, mode[NODES];
    long operations;
} *shared;
/* Of this process: the open file of each descriptor, and the contents of each page. */
static int files[FILES];
static struct { int node; uint32_t offset; int writable; } pages[PAGES];
static uint8_t *area, *elsewhere;
static uint64_t state;
static long operation;
static const char *self, *folder;
static int is_child;
static volatile sig_atomic_t alarms;

static uint32_t any(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

__attribute__((format(printf, 1, 2))) static void differs(const char *text, ...)
{
    int number = errno;
    va_list list;
    va_start(list, text);
    fprintf(stderr, "operation %ld%s: ", operation, is_child ? " (child)" : "");
    vfprintf(stderr, text, list);
    fprintf(stderr, " (errno %d: %s)\n", number, strerror(number));
    va_end(list);
    exit(1);
}

/* The call returns the value, or -1 with the error number. */
static void expect(const char *name, int64_t got, int64_t value, int number)
{
    if (number ? got != -1 || errno != number : got != value)
        differs("%s: %ld instead of %ld, error %d", name, (long)got, (long)value, number);
}

static int is_register(int node) { return node == CONTROL || node == USER; }
static int is_mappable(int node) { return node <= BYPASS; }
static uint32_t size_of(int node) { return node == BYPASS ? MEMORY : node == CONTROL ? MAPPED_CONTROL * PAGE : MAPPED_USER * PAGE; }

static int random_file(void)
{
    for (int i = 0; i < 20; i++) {
        int file = (int)any(FILES);
        if (files[file] >= 0)
            return file;
    }
    return -1;
}

static struct open *open_of(int file) { return &shared->opens[files[file]]; }

/* A descriptor of the model's table for a new one. */
static void place(int descriptor, int open)
{
    int file = (int)any(FILES);
    if (dup2(descriptor, FIRST + file) < 0)
        differs("dup2");
    close(descriptor);
    files[file] = open;
}

/* A path of the node: plain, with the driver's links, symbolic links to it or its folder, relative, with needless parts. */
static void path_of(int node, char *path, int *directory)
{
    *directory = AT_FDCWD;
    switch (any(9)) {
    case 0: sprintf(path, "/dev/xdma/card0/%s", links[node]); break;
    case 1: sprintf(path, "%s/to-dev/%s", folder, names[node]); break;
    case 2: sprintf(path, "%s/to-%s", folder, names[node]); break;
    case 3: sprintf(path, "/dev/./../dev//%s", names[node]); break;
    case 4: sprintf(path, "to-dev/%s", names[node]); break;
    case 5: *directory = open("/dev", O_RDONLY | O_DIRECTORY); sprintf(path, "%s", names[node]); break;
    case 6: *directory = open("/dev/xdma/card0", O_RDONLY | O_DIRECTORY); sprintf(path, "%s", links[node]); break;
    case 7: sprintf(path, "/proc/self/root/dev/%s", names[node]); break;
    default: sprintf(path, "/dev/%s", names[node]);
    }
    if (*directory == -1)
        differs("folder of %s", path);
}

static void do_open(void)
{
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR};
    int node = (int)any(EVENT), directory, mode = modes[any(5)], extra = 0, error = 0;
    char path[200];
    switch (any(10)) {
    case 0: extra = O_CREAT; break;
    case 1: extra = O_CREAT | O_TRUNC; break;
    case 2: extra = O_CREAT | O_EXCL; error = EEXIST; break;
    case 3: extra = O_DIRECTORY; error = ENOTDIR; break;
    case 4: extra = O_SYNC | O_CLOEXEC; break;
    case 5: extra = O_PATH; break;
    }
    if (shared->opened >= OPENS - 1)
        return;
    path_of(node, path, &directory);
    int descriptor = openat(directory, path, mode | extra, 0600);
    if (error)
        expect(path, descriptor, 0, error);
    else if (descriptor < 0)
        differs("open %s, flags %#o", path, mode | extra);
    if (directory != AT_FDCWD)
        close(directory);
    if (error)
        return;
    int open = shared->opened++;
    shared->opens[open] = (struct open){.node = node, .access = extra & O_PATH ? -1 : mode, .is_path = extra & O_PATH,
                                        .advances = mode != O_RDWR || extra & O_CREAT, .lock = -1};
    place(descriptor, open);
}

static void do_duplicate(void)
{
    int file = random_file(), pair[2];
    if (file < 0)
        return;
    switch (any(4)) {
    case 0: place(dup(FIRST + file), files[file]); break;
    case 1: place(fcntl(FIRST + file, F_DUPFD, 10), files[file]); break;
    case 2: {
        /* Through a socket. */
        char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            differs("socketpair");
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        *(int *)CMSG_DATA(header) = FIRST + file;
        if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1)
            differs("descriptor by socket");
        place(*(int *)CMSG_DATA(CMSG_FIRSTHDR(&message)), files[file]);
        close(pair[0]);
        close(pair[1]);
        break;
    }
    default: {
        /* Opened anew: an open file of its own. */
        char path[40];
        struct open *open_file = open_of(file);
        if (open_file->is_path || shared->opened >= OPENS - 1)
            return;
        sprintf(path, any(2) ? "/proc/self/fd/%d" : "/dev/fd/%d", FIRST + file);
        int descriptor = open(path, open_file->access);
        if (descriptor < 0)
            differs("%s", path);
        int open = shared->opened++;
        shared->opens[open] = (struct open){.node = open_file->node, .access = open_file->access, .advances = open_file->access != O_RDWR, .lock = -1};
        place(descriptor, open);
    }
    }
}

static void do_close(void)
{
    int file = random_file();
    if (file < 0)
        return;
    close(FIRST + file);
    files[file] = -1;
}

/* Value of a register, with its index. */
static int cell_in(int node, uint32_t from, uint32_t length)
{
    int first = (int)any(CELLS);
    for (int i = 0; i < CELLS; i++) {
        int cell = (first + i) % CELLS;
        if (cells[cell].node == node && cells[cell].at >= from && cells[cell].at + 4 <= from + length)
            return cell;
    }
    return -1;
}

static void random_bytes(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)any(256);
}

/* read and write in all their forms. */
static void do_data(void)
{
    int file = random_file();
    if (file < 0)
        return;
    struct open *open = open_of(file);
    int descriptor = FIRST + file, node = open->node, writes = (int)any(2), positional = (int)any(3) > 0, cell = -1;
    uint8_t bytes[600] = {0};
    int64_t offset = any(MEMORY - 600), result, length = 1 + any(500);
    if (is_register(node)) {
        cell = cell_in(node, 0, 1 << 20);
        offset = cells[cell].at;
        length = 4;
    } else if (node == BYPASS) {
        offset &= ~3;
        length = (length + 3) & ~3;
    }
    if (any(20) == 0)
        offset = -1 - (int64_t)any(1000);
    if (!positional) {
        int64_t sought = lseek(descriptor, offset, SEEK_SET);
        if (open->is_path)
            expect("lseek", sought, 0, EBADF);
        else
            expect("lseek", sought, offset, offset < 0 ? EINVAL : 0);
        if (offset < 0 || open->is_path)
            return;
        open->position = offset;
    }
    int error = 0;
    if (positional && offset < 0)
        error = EINVAL;
    else if (open->is_path || open->access == (writes ? O_RDONLY : O_WRONLY))
        error = EBADF;
    else if ((node == H2C && !writes) || (node == C2H && writes))
        error = EINVAL;
    uint32_t value = any(1u << 31) & (cell >= 0 ? cells[cell].mask : 0);
    if (writes && cell >= 0)
        memcpy(bytes, &value, 4);
    else if (writes)
        random_bytes(bytes, (size_t)length);
    int64_t half = is_register(node) ? length : length / 8 * 4;
    struct iovec parts[2] = {{bytes, (size_t)half}, {bytes + half, (size_t)(length - half)}};
    switch (any(2) + 2 * writes + 4 * positional) {
    case 0: result = read(descriptor, bytes, (size_t)length); break;
    case 1: result = readv(descriptor, parts, 2); break;
    case 2: result = write(descriptor, bytes, (size_t)length); break;
    case 3: result = writev(descriptor, parts, 2); break;
    case 4: result = pread(descriptor, bytes, (size_t)length, offset); break;
    case 5: result = preadv(descriptor, parts, 2, offset); break;
    case 6: result = pwrite(descriptor, bytes, (size_t)length, offset); break;
    default: result = pwritev(descriptor, parts, 2, offset); break;
    }
    if (error ? result != -1 || errno != error : result != length)
        differs("%s of %s: %ld instead of %ld, error %d; access %d, flags %#x, offset %ld", writes ? "write" : "read", names[node], (long)result, (long)length, error, open->access, fcntl(descriptor, F_GETFL), (long)offset);
    if (error)
        return;
    if (cell >= 0 && writes)
        shared->cell[cell] = value;
    else if (cell >= 0 && memcmp(bytes, &shared->cell[cell], 4))
        differs("register %s+%#x is %#x instead of %#x", names[node], cells[cell].at, *(uint32_t *)bytes, shared->cell[cell]);
    else if (cell < 0 && writes)
        memcpy(shared->memory + offset, bytes, (size_t)length);
    else if (cell < 0 && memcmp(bytes, shared->memory + offset, (size_t)length))
        differs("%ld bytes at %#lx of %s", (long)length, (long)offset, names[node]);
    if (!positional) {
        if (is_mappable(node) || open->advances)
            open->position += length;
        expect("lseek", lseek(descriptor, 0, SEEK_CUR), open->position, 0);
    }
}

static void do_map(void)
{
    int file = random_file(), kind = (int)any(5);
    uint32_t first = any(PAGES), count = 1 + any(3), writable = any(4) > 0;
    if (first + count > PAGES || (kind > 1 && file < 0))
        return;
    uint8_t *at = area + first * PAGE;
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    if (kind < 2) {
        int ordinary = kind ? open(self, O_RDONLY) : -1;
        void *mapped = mmap(at, count * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED | (kind ? 0 : MAP_ANONYMOUS), ordinary, 0);
        if (mapped != at)
            differs("mmap of an ordinary file");
        if (kind)
            close(ordinary);
        for (uint32_t i = 0; i < count; i++)
            pages[first + i].node = kind ? -2 : -3, pages[first + i].offset = i * PAGE;
        return;
    }
    struct open *open = open_of(file);
    int node = open->node;
    uint32_t limit = is_mappable(node) ? size_of(node) / PAGE : 1, offset = any(limit);
    if (offset + count > limit)
        count = limit - offset;
    int error = open->is_path ? EBADF : !is_mappable(node) ? 0 : open->access == O_WRONLY || (open->access == O_RDONLY && writable) ? EACCES : 0;
    void *mapped = mmap(at, count * PAGE, protection, MAP_SHARED | MAP_FIXED, FIRST + file, offset * PAGE);
    if (!is_mappable(node) && mapped == MAP_FAILED)
        return;
    if (error) {
        expect("mmap", mapped == MAP_FAILED ? -1 : 0, 0, error);
        return;
    }
    if (mapped != at)
        differs("mmap of %s+%#x, access %d", names[node], offset * PAGE, open->access);
    for (uint32_t i = 0; i < count; i++) {
        pages[first + i].node = node;
        pages[first + i].offset = (offset + i) * PAGE;
        pages[first + i].writable = (int)writable;
    }
}

static void do_unmap(void)
{
    uint32_t first = any(PAGES), count = 1 + any(4), to = any(PAGES);
    if (first + count > PAGES)
        return;
    if (any(2)) {
        /* Replaced by nothing accessible, so that the addresses remain this program's. */
        if (munmap(area + first * PAGE, count * PAGE)
            || mmap(area + first * PAGE, count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            differs("munmap");
        for (uint32_t i = 0; i < count; i++)
            pages[first + i].node = -1;
        return;
    }
    if (to == first || pages[first].node == -1)
        return;
    if (mremap(area + first * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + to * PAGE) == MAP_FAILED)
        differs("mremap");
    pages[to] = pages[first];
    pages[first].node = -1;
    if (mmap(area + first * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        differs("mmap");
}

static void load(uint8_t *into, const volatile uint8_t *from, uint32_t *length)
{
    uint64_t value = 0;
    switch (*length) {
    case 1: value = *from; break;
    case 2: value = *(const volatile uint16_t *)from; break;
    case 4: if (any(2)) value = *(const volatile uint32_t *)from;
            else __asm__ volatile("xorl %k0, %k0\n\taddl %1, %k0" : "=&r"(value) : "m"(*(const volatile uint32_t *)from) : "cc");
            break;
    case 8: value = *(const volatile uint64_t *)from; break;
    case 16: __asm__ volatile("movdqu (%0), %%xmm5\n\tmovdqu %%xmm5, (%1)" : : "r"(from), "r"(into) : "xmm5", "memory"); return;
    case 32: __asm__ volatile("vmovdqu (%0), %%ymm5\n\tvmovdqu %%ymm5, (%1)\n\tvzeroupper" : : "r"(from), "r"(into) : "xmm5", "memory"); return;
    default: {
        void *to = into; const volatile void *source = from; uint64_t count = *length;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(source), "+c"(count) : : "memory");
        return;
    }
    }
    memcpy(into, &value, *length);
}

static void store(volatile uint8_t *to, const uint8_t *from, uint32_t length)
{
    uint64_t value = 0;
    memcpy(&value, from, length <= 8 ? length : 8);
    switch (length) {
    case 1: *to = (uint8_t)value; break;
    case 2: *(volatile uint16_t *)to = (uint16_t)value; break;
    case 4: *(volatile uint32_t *)to = (uint32_t)value; break;
    case 8: *(volatile uint64_t *)to = value; break;
    case 16: __asm__ volatile("movdqu (%1), %%xmm6\n\tmovdqu %%xmm6, (%0)" : : "r"(to), "r"(from) : "xmm6", "memory"); break;
    case 32: __asm__ volatile("vmovdqu (%1), %%ymm6\n\tvmovdqu %%ymm6, (%0)\n\tvzeroupper" : : "r"(to), "r"(from) : "xmm6", "memory"); break;
    default: {
        volatile void *target = to; const void *source = from; uint64_t count = length;
        __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(count) : : "memory");
    }
    }
}

/* An access that another thread executes. */
static struct { int writes; volatile uint8_t *at; uint8_t *bytes; uint32_t length; sem_t begin, end; } work;

static void *worker(void *unused)
{
    for (;;) {
        while (sem_wait(&work.begin)) {}
        if (work.writes) store(work.at, work.bytes, work.length); else load(work.bytes, work.at, &work.length);
        sem_post(&work.end);
    }
    return unused;
}

static void access_memory(int writes, volatile uint8_t *at, uint8_t *bytes, uint32_t length)
{
    if (is_child || any(4)) {
        if (writes) store(at, bytes, length); else load(bytes, at, &length);
        return;
    }
    work.writes = writes; work.at = at; work.bytes = bytes; work.length = length;
    sem_post(&work.begin);
    while (sem_wait(&work.end)) {}
}

static void do_access(void)
{
    static const uint32_t widths[] = {1, 2, 4, 4, 8, 16, 0, 32};
    uint32_t page = any(PAGES), length = widths[any(__builtin_cpu_supports("avx") ? 8 : 7)], at;
    uint8_t bytes[PAGE], expected[4];
    int node = pages[page].node, writes = pages[page].writable && any(2);
    if (node < 0) {
        /* Of ordinary memory: no register may be behind it. */
        if (node == -3 && area[page * PAGE + any(PAGE)] != 0)
            differs("anonymous memory");
        if (node == -2 && memcmp(area + page * PAGE, elsewhere + pages[page].offset, 16))
            differs("ordinary file");
        return;
    }
    volatile uint8_t *mapped = area + page * PAGE;
    if (node == BYPASS) {
        length = length ? length : 1 + any(200);
        at = any(PAGE - length);
        uint32_t offset = pages[page].offset + at;
        if (writes && length == 4 && any(2)) {
            /* Both a load and a store. */
            uint32_t value = any(1u << 31), before;
            memcpy(&before, shared->memory + offset, 4);
            if (__atomic_fetch_add((volatile uint32_t *)(mapped + at), value, __ATOMIC_SEQ_CST) != before)
                differs("atomic addition at %#x of the bypass BAR", offset);
            value += before;
            memcpy(shared->memory + offset, &value, 4);
        } else if (writes) {
            random_bytes(bytes, length);
            access_memory(1, mapped + at, bytes, length);
            memcpy(shared->memory + offset, bytes, length);
        } else {
            access_memory(0, mapped + at, bytes, length);
            if (memcmp(bytes, shared->memory + offset, length))
                differs("%u bytes at %#x of the bypass BAR", length, offset);
        }
        return;
    }
    int cell = cell_in(node, pages[page].offset, PAGE);
    if (cell < 0 || any(4) == 0) {
        /* A register that does not change. */
        access_memory(0, mapped, bytes, 4);
        if (memcmp(bytes, &shared->start[node][pages[page].offset / PAGE], 4))
            differs("%s+%#x is %#x", names[node], pages[page].offset, *(uint32_t *)bytes);
        return;
    }
    at = cells[cell].at - pages[page].offset;
    length = node == USER && length && length < 4 ? length : 4;
    uint32_t value = any(1u << 31) & cells[cell].mask, skip = length == 4 ? 0 : any(4 / length) * length;
    memcpy(expected, &shared->cell[cell], 4);
    if (writes) {
        access_memory(1, mapped + at + skip, (uint8_t *)&value, length);
        memcpy(expected + skip, &value, length);
        memcpy(&shared->cell[cell], expected, 4);
    } else {
        access_memory(0, mapped + at + skip, bytes, length);
        if (memcmp(bytes, expected + skip, length))
            differs("%s+%#x", names[node], cells[cell].at + skip);
    }
}

static void do_name(void)
{
    int node = (int)any(NODES), directory;
    char path[200], target[200], other[220];
    struct stat status;
    path_of(node, path, &directory);
    switch (any(12)) {
    case 0: expect("stat", fstatat(directory, path, &status, 0), 0, 0);
            if (!S_ISCHR(status.st_mode) || (int)(status.st_mode & 0777) != shared->mode[node]) differs("mode %o of %s", status.st_mode, path);
            break;
    case 1: shared->mode[node] = any(2) ? 0666 : 0660;
            expect("chmod", fchmodat(directory, path, (mode_t)shared->mode[node], 0), 0, 0);
            break;
    case 2: expect("access", faccessat(directory, path, R_OK | W_OK, 0), 0, 0); break;
    case 3: sprintf(other, "/dev/%s", names[node]); expect("readlink", readlink(other, target, sizeof target), 0, EINVAL); break;
    case 4: sprintf(other, "/dev/%s", names[node]); expect("unlink", unlink(other), 0, EPERM); break;
    case 5: sprintf(other, "/dev/%s", names[node]); expect("rename", rename(self, other), 0, EPERM); break;
    case 6: sprintf(other, "/dev/%s", names[node]); expect("mkdir", mkdir(other, 0700), 0, EEXIST); break;
    case 7: sprintf(other, "/dev/%s", names[node]); expect("symlink", symlink("x", other), 0, EEXIST); break;
    case 8: sprintf(other, "/dev/%s", names[node]);
            if (!realpath(path, target) && directory == AT_FDCWD) differs("realpath %s", path);
            if (directory == AT_FDCWD && strcmp(target, other)) differs("realpath %s is %s", path, target);
            break;
    case 9: sprintf(other, "/dev/%s/", names[node]); expect("slash", stat(other, &status), 0, ENOTDIR); break;
    case 10: sprintf(other, "/dev/%s", names[node]); expect("truncate", truncate(other, 5), 0, EINVAL); break;
    default: sprintf(other, "%s/new-%d", folder, getpid());
            expect("symlink", symlink(path, other), 0, 0);
            expect("lstat", lstat(other, &status), 0, 0);
            if (!S_ISLNK(status.st_mode)) differs("%s is no link", other);
            expect("unlink", unlink(other), 0, 0);
    }
    if (directory != AT_FDCWD)
        close(directory);
}

static void do_descriptor(void)
{
    int file = random_file(), other = random_file();
    struct stat status;
    if (file < 0)
        return;
    struct open *open = open_of(file);
    int descriptor = FIRST + file;
    switch (any(5)) {
    case 0: expect("ftruncate", ftruncate(descriptor, 100), 0, open->is_path ? EBADF : EINVAL); break;
    case 1: expect("fstat", fstat(descriptor, &status), 0, 0);
            if (!S_ISCHR(status.st_mode) || status.st_size) differs("fstat of %s", names[open->node]);
            break;
    case 2: if (open->is_path) break;
            expect("F_GETFL", fcntl(descriptor, F_GETFL) & O_ACCMODE, open->access, 0); break;
    case 3: if (open->is_path || is_child || open_of(other)->is_path) break;
            /* A lock belongs to the open file, and all open files of a node exclude each other. */
            expect("flock", flock(descriptor, LOCK_EX | LOCK_NB), 0, 0);
            if (open_of(other)->node == open->node)
                expect("flock", flock(FIRST + other, LOCK_EX | LOCK_NB), 0, files[other] == files[file] ? 0 : EWOULDBLOCK);
            expect("flock", flock(descriptor, LOCK_UN), 0, 0);
            break;
    default: if (!open->is_path) expect("fsync", fsync(descriptor), 0, EINVAL);
    }
}

static void steps(long count);

static void do_fork(void)
{
    if (is_child)
        return;
    fflush(stderr);
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        state ^= 0x5555;
        steps(8);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status)
        differs("child: %#x", status);
    any(2);
}

/* A program that inherits a descriptor. */
static void do_execute(void)
{
    int file = random_file();
    if (is_child || file < 0 || open_of(file)->access == O_WRONLY || open_of(file)->is_path || open_of(file)->node != C2H)
        return;
    uint32_t at = any(MEMORY - 16);
    char number[12], offset[12], bytes[40];
    sprintf(number, "%d", FIRST + file);
    sprintf(offset, "%u", at);
    for (int i = 0; i < 16; i++)
        sprintf(bytes + 2 * i, "%02x", shared->memory[at + (uint32_t)i]);
    /* In a copy of this address space, or in this one. */
    pid_t child = any(2) ? fork() : vfork();
    if (child == 0) {
        execl(self, self, "read", number, offset, bytes, (char *)NULL);
        _exit(3);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status)
        differs("program that inherits descriptor %d: %#x", FIRST + file, status);
}

static int executed(char **arguments)
{
    uint8_t bytes[16];
    char text[40];
    if (pread(atoi(arguments[2]), bytes, 16, atoi(arguments[3])) != 16)
        return 4;
    for (int i = 0; i < 16; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return strcmp(text, arguments[4]) ? 5 : 0;
}

static void steps(long count)
{
    for (long i = 0; i < count; i++, operation++) {
        switch (any(40)) {
        case 0 ... 3: do_open(); break;
        case 4 ... 5: do_duplicate(); break;
        case 6: do_close(); break;
        case 7 ... 12: do_data(); break;
        case 13 ... 16: do_map(); break;
        case 17 ... 18: do_unmap(); break;
        case 19 ... 32: do_access(); break;
        case 33 ... 35: do_name(); break;
        case 36 ... 37: do_descriptor(); break;
        case 38: do_fork(); break;
        default: do_execute();
        }
    }
}

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* State of the card at the beginning. */
static void begin(void)
{
    char path[300], link[300];
    for (int node = 0; node < NODES; node++) {
        sprintf(path, "/dev/%s", names[node]);
        sprintf(link, "%s/to-%s", folder, names[node]);
        expect("symlink", symlink(path, link), 0, 0);
        shared->mode[node] = 0666;
        int file = open(path, O_RDWR);
        if (file < 0)
            differs("%s", path);
        for (uint32_t page = 0; is_register(node) && page < size_of(node) / PAGE; page++)
            expect(path, pread(file, &shared->start[node][page], 4, page * PAGE), 4, 0);
        for (int cell = 0; cell < CELLS; cell++)
            if (cells[cell].node == node) {
                uint32_t zero = 0;
                expect(path, pwrite(file, &zero, 4, cells[cell].at), 4, 0);
            }
        if (node == H2C)
            expect(path, pwrite(file, shared->memory, MEMORY, 0), MEMORY, 0);
        close(file);
    }
    sprintf(link, "%s/to-dev", folder);
    expect("symlink", symlink("/dev", link), 0, 0);
}

int main(int count, char **arguments)
{
    self = arguments[0];
    if (count == 5)
        return executed(arguments);
    if (count != 4)
        return 2;
    folder = arguments[3];
    state = strtoull(arguments[1], NULL, 0);
    if (chdir(folder))
        differs("%s", folder);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    area = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int program = open(self, O_RDONLY);
    elsewhere = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, program, 0);
    close(program);
    memset(files, -1, sizeof files);
    for (int page = 0; page < PAGES; page++)
        pages[page].node = -1;
    begin();
    sem_init(&work.begin, 0, 0);
    sem_init(&work.end, 0, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, NULL))
        differs("thread");
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval interval = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &interval, NULL);
    steps(atol(arguments[2]));
    printf("%ld operations, %d open files, signals: %s\n", operation, shared->opened, alarms ? "yes" : "no");
    return 0;
}
