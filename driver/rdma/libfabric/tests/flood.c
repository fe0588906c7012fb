/* Small messages of all other ranks to rank 0, which sleeps first and then receives them: "any" from any source, "each" from one rank after the
 * other, beginning with the last one. Arguments: number of messages in all, order. Each rank prints the maximum of its memory. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

/* Maximum of the memory of this process, in KiB. */
static long max_memory(void)
{
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    fclose(status);
    return kib;
}

static void receive(int source, long *expected)
{
    MPI_Status status;
    long number;
    MPI_Recv(&number, 1, MPI_LONG, source, 7, MPI_COMM_WORLD, &status);
    if (number != expected[status.MPI_SOURCE]++) {
        fprintf(stderr, "message %ld of rank %d arrived out of order\n", number, status.MPI_SOURCE);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long each = atol(argv[1]) / (size - 1);
    int is_any = strcmp(argv[2], "any") == 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank) {
        for (long number = 0; number < each; number++) MPI_Send(&number, 1, MPI_LONG, 0, 7, MPI_COMM_WORLD);
    } else {
        long *expected = calloc((size_t)size, sizeof *expected);
        sleep(2);
        double begun = MPI_Wtime();
        for (int source = size - 1; source > 0; source--)
            for (long number = 0; number < each; number++) receive(is_any ? MPI_ANY_SOURCE : source, expected);
        printf("%s: %.0f messages/s\n", argv[2], (double)each * (size - 1) / (MPI_Wtime() - begun));
        free(expected);
    }
    printf("rank %d: %ld KiB\n", rank, max_memory());
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ok %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
