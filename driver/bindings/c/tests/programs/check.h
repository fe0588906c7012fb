/* Checks of the test programs: a call that does not return the expected status ends the program with line and error. */
#ifndef CHECK_H
#define CHECK_H

#include <fpga.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

static inline void expect_status(const char *file, int line, fpga_status found, fpga_status wanted)
{
    const fpga_error *error = fpga_last_error();
    if (found != wanted) {
        fprintf(stderr, "%s:%d: %s instead of %s: %s; %s\n", file, line, fpga_status_name(found), fpga_status_name(wanted),
                error ? error->message : "", error ? error->advice : "");
        exit(1);
    }
    if (found != FPGA_OK && (error->status != (int32_t)found || error->message[0] == 0)) {
        fprintf(stderr, "%s:%d: the last error is not that of the call\n", file, line);
        exit(1);
    }
}

static inline void expect_true(const char *file, int line, int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "%s:%d: not true: %s\n", file, line, text);
        exit(1);
    }
}

/* The call returns the status. */
#define EXPECT(call, status) expect_status(__FILE__, __LINE__, (call), (status))
/* The call succeeds. */
#define DO(call) EXPECT(call, FPGA_OK)
/* The condition holds. */
#define HOLDS(condition) expect_true(__FILE__, __LINE__, !!(condition), #condition)

#endif
