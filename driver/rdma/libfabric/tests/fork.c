/* Program of a test: objects of a process in its children after fork(), which are refused and change nothing for the parent. Prints "ok" at
 * its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fabric.h>
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
#define REFUSED(call) EXPECT(call, -FI_EOPBADSTATE)

enum { LENGTH = 1 << 16, CHILDREN = 4 };

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_mr *mr;
static struct fid_cntr *counter;
static struct side a, b;
static char from[LENGTH], to[LENGTH], window[LENGTH];

/* Waits for a completion of one side while both make progress. */
static void wait_for(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	ssize_t count;

	while ((count = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		fi_cq_read(side == &a ? b.cq : a.cq, NULL, 0);
	if (count != 1) {
		struct fi_cq_err_entry error = { 0 };
		fi_cq_readerr(side->cq, &error, 0);
		printf("completion failed: %s\n", fi_cq_strerror(side->cq, error.prov_errno, error.err_data, NULL, 0));
		exit(1);
	}
}

static void open_side(struct side *side)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
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

/* A child that uses everything, and ends as a program does. */
static void child(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_attr cq_attr = { 0 };
	struct fi_av_attr av_attr = { 0 };
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *other;
	struct fid_mr *memory;
	char name[FI_NAME_MAX];
	size_t length = sizeof(name);

	alarm(60);
	REFUSED(fi_tsend(a.ep, from, LENGTH, NULL, 1, 7, NULL));
	REFUSED(fi_trecv(b.ep, to, LENGTH, NULL, 0, 7, 0, NULL));
	REFUSED(fi_write(a.ep, from, LENGTH, NULL, 1, (uint64_t) window, fi_mr_key(mr), NULL));
	REFUSED(fi_cq_read(a.cq, &entry, 1));
	REFUSED(fi_cq_sread(b.cq, &entry, 1, NULL, -1));
	REFUSED(fi_cq_readerr(a.cq, &error, 0));
	REFUSED(fi_cntr_wait(counter, 1 << 20, -1));
	REFUSED(fi_cancel(&b.ep->fid, to));
	REFUSED(fi_getname(&a.ep->fid, name, &length));
	REFUSED(fi_av_insert(av, name, 1, NULL, 0, NULL));
	REFUSED(fi_endpoint(domain, info, &ep, NULL));
	REFUSED(fi_cq_open(domain, &cq_attr, &cq, NULL));
	REFUSED(fi_av_open(domain, &av_attr, &other, NULL));
	REFUSED(fi_mr_reg(domain, from, LENGTH, FI_REMOTE_READ, 0, 0, 0, &memory, NULL));
	REFUSED(fi_close(&a.ep->fid));
	REFUSED(fi_close(&b.ep->fid));
	REFUSED(fi_close(&a.cq->fid));
	REFUSED(fi_close(&counter->fid));
	REFUSED(fi_close(&mr->fid));
	REFUSED(fi_close(&av->fid));
	REFUSED(fi_close(&domain->fid));
	REFUSED(fi_close(&fabric->fid));
	/* The provider works in the child. */
	struct fi_info *found;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, info, &found), 0);
	struct fid_fabric *own;
	EXPECT(fi_fabric(found->fabric_attr, &own, NULL), 0);
	EXPECT(fi_close(&own->fid), 0);
	exit(0);
}

int main(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cntr_attr counts = { .events = FI_CNTR_EVENTS_COMP };

	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	info->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	EXPECT(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	EXPECT(fi_domain(fabric, info, &domain, NULL), 0);
	EXPECT(fi_av_open(domain, &av_attr, &av, NULL), 0);
	EXPECT(fi_cntr_open(domain, &counts, &counter, NULL), 0);
	open_side(&a);
	open_side(&b);
	EXPECT(fi_mr_reg(domain, window, LENGTH, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	for (int n = 0; n < CHILDREN; n++) {
		int status = -1;

		memset(from, n + 1, LENGTH);
		EXPECT(fi_trecv(b.ep, to, LENGTH, NULL, 0, 7, 0, to), 0);
		EXPECT(fi_tsend(a.ep, from, LENGTH, NULL, 1, 7, from), 0);
		fflush(NULL);
		pid_t process = fork();
		if (process == 0)
			child();
		EXPECT(waitpid(process, &status, 0), process);
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, 1);
		wait_for(&b);
		wait_for(&a);
		EXPECT(memcmp(from, to, LENGTH), 0);
		EXPECT(fi_write(a.ep, from, LENGTH, NULL, 1, (uint64_t) window, fi_mr_key(mr), NULL), 0);
		wait_for(&a);
		EXPECT(memcmp(from, window, LENGTH), 0);
	}
	EXPECT(fi_close(&a.ep->fid), 0);
	EXPECT(fi_close(&b.ep->fid), 0);
	EXPECT(fi_close(&a.cq->fid), 0);
	EXPECT(fi_close(&b.cq->fid), 0);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&counter->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	printf("ok\n");
	return 0;
}
