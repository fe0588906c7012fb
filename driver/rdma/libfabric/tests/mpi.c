/* Exchanges of MPI ranks with checks of content: point to point in all sizes, any source, unexpected messages, collective, one-sided.
   The argument is the number of rounds, 1 by default. With more, each rank prints its process, and rank 0 the rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void check(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static unsigned char byte(int owner, size_t at)
{
    return (unsigned char)(owner * 31 + at * 7 + (at >> 8));
}

static void ring(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (size_t length = 0; length <= 4 << 20; length = length ? length * 5 : 1) {
        unsigned char *out = malloc(length + 1), *in = malloc(length + 1);
        for (size_t at = 0; at < length; at++) out[at] = byte(rank, at);
        MPI_Request requests[2];
        MPI_Irecv(in, (int)length, MPI_BYTE, previous, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, (int)length, MPI_BYTE, next, 7, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (size_t at = 0; at < length; at++) check(in[at] == byte(previous, at), "wrong byte of the previous rank");
        free(out);
        free(in);
    }
}

/* Rank 0 takes the messages of all others in the order of each sender. */
static void any_source(void)
{
    enum { COUNT = 50 };
    if (rank) {
        for (int number = 0; number < COUNT; number++) MPI_Send(&number, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        return;
    }
    int *expected = calloc((size_t)size, sizeof *expected);
    for (int left = COUNT * (size - 1); left; left--) {
        int number;
        MPI_Status status;
        MPI_Probe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &status);
        MPI_Recv(&number, 1, MPI_INT, status.MPI_SOURCE, 9, MPI_COMM_WORLD, &status);
        check(number == expected[status.MPI_SOURCE]++, "messages of one rank changed their order");
    }
    free(expected);
}

/* Small messages that arrive before their receives, which take them in the reverse order. */
static void unexpected(void)
{
    enum { COUNT = 2000 };
    if (rank == 0)
        for (int number = 0; number < COUNT; number++) MPI_Send(&number, 1, MPI_INT, 1, number, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int number = COUNT - 1, received; rank == 1 && number >= 0; number--) {
        MPI_Recv(&received, 1, MPI_INT, 0, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(received == number, "wrong unexpected message");
    }
}

static void collective(void)
{
    long sum, mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(sum == (long)size * (size + 1) / 2, "wrong sum");
    enum { EACH = 5000 };
    int *out = malloc(sizeof *out * EACH * (size_t)size), *in = malloc(sizeof *in * EACH * (size_t)size);
    for (int to = 0; to < size; to++)
        for (int at = 0; at < EACH; at++) out[to * EACH + at] = rank * 1000000 + to * 10000 + at;
    MPI_Alltoall(out, EACH, MPI_INT, in, EACH, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int at = 0; at < EACH; at++)
            check(in[from * EACH + at] == from * 1000000 + rank * 10000 + at, "wrong number of an all-to-all");
    free(out);
    free(in);
}

static void one_sided(void)
{
    enum { COUNT = 3000 };
    long *memory, *mine = malloc(sizeof *mine * COUNT);
    MPI_Win window;
    MPI_Win_allocate(sizeof *memory * COUNT, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    for (int at = 0; at < COUNT; at++) { memory[at] = 0; mine[at] = rank + at; }
    MPI_Win_fence(0, window);
    MPI_Put(mine, COUNT, MPI_LONG, (rank + 1) % size, 0, COUNT, MPI_LONG, window);
    MPI_Win_fence(0, window);
    for (int at = 0; at < COUNT; at++) check(memory[at] == (rank + size - 1) % size + at, "wrong number of a put");
    MPI_Win_fence(0, window);
    long one = 1;
    MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    check(rank || memory[0] == size - 1 + size, "wrong sum of accumulations");
    MPI_Win_free(&window);
    free(mine);
}

/* Memory of the program as a window, with the target's help and without. */
static void passive(void)
{
    enum { MAX_COUNT = 100000 };
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int count = 1; count <= MAX_COUNT; count *= 10) {
        long *memory = calloc((size_t)count, sizeof *memory), *mine = calloc((size_t)count, sizeof *mine);
        MPI_Win window;
        for (int at = 0; at < count; at++) mine[at] = rank + at;
        MPI_Win_create(memory, (MPI_Aint)sizeof *memory * count, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
        MPI_Put(mine, count, MPI_LONG, next, 0, count, MPI_LONG, window);
        MPI_Win_flush(next, window);
        for (int at = 0; at < count; at++) mine[at] = 0;
        MPI_Get(mine, count, MPI_LONG, next, 0, count, MPI_LONG, window);
        MPI_Win_unlock(next, window);
        for (int at = 0; at < count; at++) check(mine[at] == rank + at, "wrong number of a get");
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
        for (int at = 0; at < count; at++) check(memory[at] == previous + at, "wrong number of a put under a lock");
        MPI_Win_unlock(rank, window);
        MPI_Win_free(&window);
        free(memory);
        free(mine);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    if (rounds > 1) {
        printf("rank %d is process %d\n", rank, (int)getpid());
        fflush(stdout);
    }
    for (int round = 1; round <= rounds; round++) {
        ring();
        any_source();
        unexpected();
        collective();
        one_sided();
        passive();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0 && rounds > 1) {
            printf("round %d\n", round);
            fflush(stdout);
        }
    }
    if (rank == 0) printf("ok %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
