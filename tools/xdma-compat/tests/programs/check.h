/* Checks of results, for programs of tests. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno));             \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)
/* The call fails with this error number. */
#define FAILS(call, number) CHECK((call) == -1 && errno == (number))

static int opened(const char *path, int flags)
{
    int file = open(path, flags);
    if (file < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    return file;
}
