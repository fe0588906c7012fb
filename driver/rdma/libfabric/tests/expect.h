/* Headers of libfabric, and checks of results, for programs of tests. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* Ends the program unless a call has the expected result. */
#define EXPECT(call, expected)                                                                   \
	do {                                                                                     \
		long long result_ = (long long) (call), expected_ = (long long) (expected);      \
		if (result_ != expected_) {                                                      \
			printf("line %d: %s is %lld, not %lld\n", __LINE__, #call, result_, expected_); \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)
#define OK(call) EXPECT(call, 0)

#endif
