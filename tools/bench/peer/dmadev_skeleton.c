/* The peer of `cargo measure`: DPDK's software DMA device (dma_skeleton: rings, and a worker thread that copies),
 * driven through the dmadev API by one thread. It measures, for one size,
 *
 *   throughput  up to `depth` - 1 operations in flight, at most 32 submitted per round, then one poll for completions
 *   latency     one operation at a time, from before its submission to after the poll that found it done
 *   CPU         cost of submitting and reaping on the submitting core, without waiting (see cpu_ns)
 *
 * and prints one JSON line. `busy_cpus` in it is CPU time over wall time of the throughput run: below 2 where another program
 * took one of the two CPUs for a while. Build and run it by hand:
 *
 *   gcc -O3 -march=native -DALLOW_EXPERIMENTAL_API \
 *       dmadev_skeleton.c -o dmadev_skeleton $(pkg-config --cflags --libs libdpdk)
 *   ./dmadev_skeleton --no-huge -m 256 --vdev=dma_skeleton0,lcore=1 --iova-mode=va -l 0 --no-pci -- \
 *       --depth 256 --size 64 --seconds 0.5 --samples 100000 --batches 2000
 *
 * Do not use a real-time policy (chrt): the device's thread starts on the CPU of this one, which would never let it run and migrate.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rte_dmadev.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_version.h>

/* Size of the working set in bytes, and maximum number of buffers. */
#define WORKING_SET (16u << 20)
#define MOST_SLOTS 4096u
/* Operations submitted per round. */
#define BURST 32
/* Operations of the trial run, which determines how many fit into --seconds, and warms up caches. */
#define TRIAL 4096u
/* Initial and minimum time from a closed batch's submission to its reaping, in nanoseconds. */
#define FIRST_PAUSE 2000u
/* Latencies are counted per nanosecond up to this; longer ones count as this. */
#define LONGEST (1u << 20)

static const int16_t device = 0;

/* Two working sets: buffer n of the one is copied to buffer n of the other. */
struct buffers {
    char *source, *target;
    size_t size, slots;
};

static uint64_t read_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) { return read_ns(CLOCK_MONOTONIC); }

static void fail(int status, const char *what) {
    fprintf(stderr, "dmadev_skeleton: %s\n", what);
    exit(status);
}

/* By value, so that the compiler keeps its parts in registers across calls into the device. */
static inline int copy(struct buffers b, uint64_t n) {
    size_t at = b.size * (n % b.slots);
    return rte_dma_copy(device, 0, (rte_iova_t)(uintptr_t)(b.source + at), (rte_iova_t)(uintptr_t)(b.target + at),
                        b.size, 0);
}

/* The measured loop: `total` operations; returns the nanoseconds it took. */
static uint64_t throughput(struct buffers b, uint64_t total, uint64_t depth) {
    uint64_t submitted = 0, done = 0, began = now_ns();
    while (done < total) {
        int burst = 0;
        while (submitted < total && submitted - done < depth - 1 && burst < BURST) {
            if (copy(b, submitted) < 0) break;
            submitted++;
            burst++;
        }
        if (burst) rte_dma_submit(device, 0);
        uint16_t last;
        bool error;
        done += rte_dma_completed(device, 0, 64, &last, &error);
    }
    return now_ns() - began;
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Cost of a reading of the clock: median difference of two consecutive readings. */
static uint64_t clock_ns(void) {
    enum { READINGS = 2001 };
    static uint64_t spans[READINGS];
    for (int n = 0; n < READINGS; n++) {
        uint64_t began = now_ns();
        spans[n] = now_ns() - began;
    }
    qsort(spans, READINGS, sizeof spans[0], compare_u64);
    return spans[READINGS / 2];
}

/* One operation at a time. The clock's own cost is in every sample. */
static void latency(struct buffers b, uint64_t samples, uint32_t *histogram) {
    for (uint64_t n = 0; n < samples; n++) {
        uint16_t last;
        bool error = false;
        uint64_t began = now_ns();
        if (copy(b, n) < 0) fail(6, "an idle device refused an operation");
        rte_dma_submit(device, 0);
        while (rte_dma_completed(device, 0, 1, &last, &error) == 0) {}
        uint64_t span = now_ns() - began;
        histogram[span < LONGEST ? span : LONGEST]++;
    }
}

static uint32_t quantile(const uint32_t *histogram, uint64_t samples, double part) {
    uint64_t rank = (uint64_t)(part * (double)samples), seen = 0;
    for (uint32_t span = 0; span <= LONGEST; span++) {
        seen += histogram[span];
        if (seen > rank) return span;
    }
    return LONGEST;
}

/* Closed batches: submitting a whole batch is timed. A pause follows, long enough for the device to complete the batch, which
 * is not timed. Then reaping in one call is timed. A batch that is not complete by then would include waiting: it is excluded,
 * and the pause grows; otherwise the pause shrinks slowly, down to its initial value. The cost of the clock is subtracted from
 * both spans. Returns the median of the batches. */
static double cpu_ns(struct buffers b, uint64_t batches, uint64_t *left_out) {
    uint64_t clock = clock_ns(), pause = FIRST_PAUSE, counted = 0, operation = 0;
    uint64_t *spans = calloc(batches, sizeof *spans);
    if (!spans) fail(5, "out of memory");
    *left_out = 0;
    for (uint64_t n = 0; n < batches; n++) {
        uint16_t last;
        bool error = false;
        uint64_t began = now_ns();
        for (int k = 0; k < BURST; k++)
            if (copy(b, operation++) < 0) fail(6, "an idle device refused a batch");
        rte_dma_submit(device, 0);
        uint64_t submitted = now_ns();
        while (now_ns() - submitted < pause) {}
        uint64_t back = now_ns();
        uint16_t done = rte_dma_completed(device, 0, BURST, &last, &error);
        uint64_t reaped = now_ns();
        if (done == BURST) {
            uint64_t span = (submitted - began) + (reaped - back);
            if (pause > FIRST_PAUSE) pause -= pause / 64;
            spans[counted++] = span > 2 * clock ? span - 2 * clock : 0;
            continue;
        }
        while (done < BURST) done += rte_dma_completed(device, 0, BURST, &last, &error);
        ++*left_out;
        if (pause < 100000000) pause += pause / 4;
    }
    qsort(spans, counted, sizeof *spans, compare_u64);
    double median = counted ? (double)spans[counted / 2] / BURST : 0.0;
    free(spans);
    return median;
}

static double number(const char *text, const char *name) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || value < 0) {
        fprintf(stderr, "dmadev_skeleton: --%s %s is not a number\n", name, text);
        exit(64);
    }
    return value;
}

int main(int argc, char **argv) {
    int taken = rte_eal_init(argc, argv);
    if (taken < 0) fail(1, "the initialisation of the DPDK environment failed");
    argc -= taken;
    argv += taken;

    enum { DEPTH, SIZE, OPS, SECONDS, SAMPLES, BATCHES, COUNT };
    static const struct option options[] = {
        {"depth", required_argument, 0, DEPTH},     {"size", required_argument, 0, SIZE},
        {"ops", required_argument, 0, OPS},         {"seconds", required_argument, 0, SECONDS},
        {"samples", required_argument, 0, SAMPLES}, {"batches", required_argument, 0, BATCHES},
        {0, 0, 0, 0},
    };
    double given[COUNT] = {[DEPTH] = 256, [SIZE] = 64, [SECONDS] = 0.5};
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (found < 0 || found >= COUNT)
            fail(64, "options: --depth N --size BYTES --ops N | --seconds S --samples N --batches N");
        given[found] = number(optarg, options[found].name);
    }
    uint64_t depth = (uint64_t)given[DEPTH];
    size_t size = (size_t)given[SIZE];
    if (depth < 2 * BURST || depth > 65535) fail(64, "--depth must be 64 to 65535");
    if (size < 1 || size > WORKING_SET) fail(64, "--size must be 1 to 16777216");
    size_t slots = WORKING_SET / size;
    if (slots > MOST_SLOTS) slots = MOST_SLOTS;

    if (rte_dma_count_avail() < 1) fail(1, "there is no DMA device: start with --vdev=dma_skeleton0,lcore=1");
    struct rte_dma_conf conf = {.nb_vchans = 1};
    if (rte_dma_configure(device, &conf)) fail(2, "the device cannot be configured");
    struct rte_dma_vchan_conf channel = {.direction = RTE_DMA_DIR_MEM_TO_MEM, .nb_desc = depth};
    if (rte_dma_vchan_setup(device, 0, &channel)) fail(3, "the device's channel cannot be set up");
    if (rte_dma_start(device)) fail(4, "the device does not start");
    struct buffers b = {rte_malloc(0, size * slots, 4096), rte_malloc(0, size * slots, 4096), size, slots};
    if (!b.source || !b.target) fail(5, "out of memory: give more with -m");
    memset(b.source, 0xa5, size * slots);
    memset(b.target, 0, size * slots);

    uint64_t operations = (uint64_t)given[OPS], elapsed;
    if (operations == 0) {
        /* A round over the working set, then as many as fit. */
        throughput(b, slots, depth);
        uint64_t trial = size <= 4096 ? 16 * TRIAL : slots;
        elapsed = throughput(b, trial, depth);
        operations = (uint64_t)(given[SECONDS] * 1e9 / (double)(elapsed ? elapsed : 1) * (double)trial);
        if (operations < trial) operations = trial;
    }
    memset(b.target, 0, size * slots);
    uint64_t used = read_ns(CLOCK_PROCESS_CPUTIME_ID);
    elapsed = throughput(b, operations, depth);
    used = read_ns(CLOCK_PROCESS_CPUTIME_ID) - used;
    size_t checked = (operations < slots ? operations : slots) * size;
    bool verified = memcmp(b.source, b.target, checked) == 0;
    double seconds = (double)elapsed * 1e-9;

    printf("{\"schema_version\":1,\"dpdk\":\"%s\",\"size\":%zu,\"depth\":%lu,\"batch\":%d,\"operations\":%lu,"
           "\"seconds\":%.6f,\"ops_per_s\":%.0f,\"gb_per_s\":%.4f,\"verified\":%s,\"busy_cpus\":%.3f,\"clock_ns\":%lu",
           rte_version(), size, depth, BURST, operations, seconds, (double)operations / seconds,
           (double)operations * (double)size / seconds / 1e9, verified ? "true" : "false",
           (double)used / (double)elapsed, clock_ns());
    uint64_t samples = (uint64_t)given[SAMPLES], batches = (uint64_t)given[BATCHES];
    if (samples) {
        uint32_t *histogram = calloc(LONGEST + 1, sizeof *histogram);
        if (!histogram) fail(5, "out of memory");
        latency(b, samples, histogram);
        printf(",\"samples\":%lu,\"p50_ns\":%u,\"p99_ns\":%u,\"p999_ns\":%u", samples,
               quantile(histogram, samples, 0.5), quantile(histogram, samples, 0.99),
               quantile(histogram, samples, 0.999));
        free(histogram);
    }
    if (batches) {
        uint64_t left_out;
        double spent = cpu_ns(b, batches, &left_out);
        printf(",\"cpu_ns_per_op\":%.2f,\"batches\":%lu,\"batches_left_out\":%lu", spent, batches, left_out);
    }
    printf("}\n");
    return verified ? 0 : 7;
}
