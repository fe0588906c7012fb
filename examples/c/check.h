/* Ends the program with the message and the advice of the library if a call fails. */
#ifndef CHECK_H
#define CHECK_H

#include <fpga.h>
#include <stdio.h>
#include <stdlib.h>

static inline void check(fpga_status status)
{
    if (status != FPGA_OK) {
        const fpga_error *error = fpga_last_error();
        fprintf(stderr, "%s\n", error->message);
        if (error->advice[0])
            fprintf(stderr, "help: %s\n", error->advice);
        exit(1);
    }
}

#define SECOND UINT64_C(1000000000)

#endif
