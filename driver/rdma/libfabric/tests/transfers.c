/* Program of a test: two endpoints of one process exchange data through simulated cards. Prints "ok" at its end. */
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

#define EXPECT(call, expected)                                                                   \
	do {                                                                                     \
		long long result_ = (long long) (call), expected_ = (long long) (expected);      \
		if (result_ != expected_) {                                                      \
			printf("line %d: %s is %lld, not %lld\n", __LINE__, #call, result_, expected_); \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

#define LARGE (1 << 20)

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
};

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct side a, b;

/* Takes the next completion of one side while both make progress. */
static struct fi_cq_tagged_entry next(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t count;

	while ((count = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN) {
		fi_cq_read(side == &a ? b.cq : a.cq, NULL, 0);
	}
	if (count < 0) {
		fi_cq_readerr(side->cq, &error, 0);
		printf("completion failed: %s\n", fi_cq_strerror(side->cq, error.prov_errno, error.err_data, NULL, 0));
		exit(1);
	}
	return entry;
}

static void open_side(struct fi_info *info, struct side *side)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	char name[FI_NAME_MAX];
	size_t length = sizeof(name);

	EXPECT(fi_endpoint(domain, info, &side->ep, NULL), 0);
	EXPECT(fi_cq_open(domain, &attr, &side->cq, NULL), 0);
	EXPECT(fi_ep_bind(side->ep, &av->fid, 0), 0);
	EXPECT(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EXPECT(fi_enable(side->ep), 0);
	EXPECT(fi_getname(&side->ep->fid, name, &length), 0);
	EXPECT(fi_av_insert(av, name, 1, NULL, 0, NULL), 1);
}

static void messages(char *from, char *to, size_t length)
{
	for (size_t i = 0; i < length; i++)
		from[i] = (char) (i * 7 + length);
	EXPECT(fi_trecv(b.ep, to, LARGE, NULL, 0, 0x17, 0, to), 0);
	EXPECT(fi_tsenddata(a.ep, from, length, NULL, 99, 1, 0x17, from), 0);
	struct fi_cq_tagged_entry received = next(&b), sent = next(&a);
	EXPECT(sent.op_context == from, 1);
	EXPECT(received.op_context == to, 1);
	EXPECT(received.len, length);
	EXPECT(received.tag, 0x17);
	EXPECT(received.data, 99);
	EXPECT(memcmp(from, to, length), 0);
}

/* Returns a counter that was bound to a region: it outlives the endpoints. */
static struct fid_cntr *access_memory(char *local, char *remote)
{
	struct fid_mr *mr;
	struct fid_cntr *reads, *writes;
	struct fi_cntr_attr counts = { .events = FI_CNTR_EVENTS_COMP };
	uint64_t one = 1, old = 0;

	EXPECT(fi_mr_reg(domain, remote, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	uint64_t address = (uint64_t) remote, key = fi_mr_key(mr);
	EXPECT(fi_cntr_open(domain, &counts, &reads, NULL), 0);
	EXPECT(fi_cntr_open(domain, &counts, &writes, NULL), 0);
	EXPECT(fi_mr_bind(mr, &reads->fid, 0), -FI_EINVAL);
	EXPECT(fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ), 0);
	EXPECT(fi_mr_bind(mr, &writes->fid, FI_REMOTE_READ), -FI_EINVAL);
	EXPECT(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), 0);
	memset(remote, 0, LARGE);
	EXPECT(fi_write(a.ep, local, LARGE, NULL, 1, address, key, NULL), 0);
	EXPECT(next(&a).flags, FI_RMA | FI_WRITE);
	EXPECT(memcmp(local, remote, LARGE), 0);
	memset(local, 0, LARGE);
	EXPECT(fi_read(a.ep, local, LARGE, NULL, 1, address, key, NULL), 0);
	EXPECT(next(&a).flags, FI_RMA | FI_READ);
	EXPECT(memcmp(local, remote, LARGE), 0);
	memset(remote, 0, 8);
	for (uint64_t i = 0; i < 3; i++) {
		EXPECT(fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, 1, address, key, FI_UINT64, FI_SUM, NULL), 0);
		EXPECT(next(&a).flags, FI_ATOMIC | FI_READ);
		EXPECT(old, i);
	}
	EXPECT(fi_cntr_wait(writes, 1, 5000), 0);
	EXPECT(fi_cntr_wait(reads, 4, 5000), 0);
	EXPECT(fi_cntr_read(writes), 1);
	EXPECT(fi_close(&writes->fid), -FI_EBUSY);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&writes->fid), 0);

	/* The region is gone. */
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	EXPECT(fi_write(a.ep, local, 8, NULL, 1, address, key, local), 0);
	ssize_t count;
	while ((count = fi_cq_read(a.cq, &entry, 1)) == -FI_EAGAIN)
		fi_cq_read(b.cq, NULL, 0);
	EXPECT(count, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(a.cq, &error, 0), 1);
	EXPECT(error.err, FI_EKEYREJECTED);
	EXPECT(error.op_context == local, 1);
	return reads;
}

int main(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	char *from = malloc(LARGE), *to = malloc(LARGE);

	setbuf(stdout, NULL);
	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	info->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	EXPECT(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	EXPECT(fi_domain(fabric, info, &domain, NULL), 0);
	EXPECT(fi_av_open(domain, &av_attr, &av, NULL), 0);
	open_side(info, &a);
	open_side(info, &b);
	messages(from, to, 0);
	messages(from, to, 100);
	messages(from, to, 5000);
	messages(from, to, LARGE);
	struct fid_cntr *counter = access_memory(from, to);
	EXPECT(fi_close(&a.ep->fid), 0);
	EXPECT(fi_close(&b.ep->fid), 0);
	EXPECT(fi_cntr_read(counter), 4);
	EXPECT(fi_close(&counter->fid), 0);
	EXPECT(fi_close(&a.cq->fid), 0);
	EXPECT(fi_close(&b.cq->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	free(from);
	free(to);
	printf("ok\n");
	return 0;
}
