/* Program of a test: requests that the provider refuses, each with its error. The reasons are on standard error. Prints "ok" at its end. */
#include "pair.h"

#define API FI_VERSION(1, 17)

/* Looks for the provider with one capability more, or with default flags of operations. */
static void hint(uint64_t caps, uint64_t flags)
{
	struct fi_info *wanted = fi_allocinfo(), *found;

	wanted->fabric_attr->prov_name = strdup("fpga");
	wanted->caps = FI_MSG | FI_RMA | caps;
	wanted->tx_attr->op_flags = flags;
	EXPECT(fi_getinfo(API, NULL, NULL, 0, wanted, &found), -FI_ENODATA);
	fi_freeinfo(wanted);
}

static void sets(void)
{
	struct fi_poll_attr poll_attr = { 0 };
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_FD };
	struct fid_poll *poll;
	struct fid_wait *wait;

	EXPECT(fi_poll_open(domain, &poll_attr, &poll), -FI_ENOSYS);
	EXPECT(fi_poll_open(domain, &poll_attr, &poll), -FI_ENOSYS);
	EXPECT(fi_wait_open(fabric, &wait_attr, &wait), -FI_ENOSYS);
}

/* An operation with a fence is not executed; the endpoint works afterwards. */
static void fence(void)
{
	char data[8] = "fenced", buffer[8] = "";
	struct iovec iov = { data, sizeof(data) };
	struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = 1 };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = 1 };
	struct fi_rma_iov remote = { 0, sizeof(data), 1 };
	struct fi_msg_rma write = { .msg_iov = &iov, .iov_count = 1, .addr = 1, .rma_iov = &remote, .rma_iov_count = 1 };

	EXPECT(fi_sendmsg(a.ep, &message, FI_FENCE), -FI_EBADFLAGS);
	EXPECT(fi_tsendmsg(a.ep, &tagged, FI_FENCE | FI_COMPLETION), -FI_EBADFLAGS);
	EXPECT(fi_writemsg(a.ep, &write, FI_FENCE), -FI_EBADFLAGS);
	OK(fi_recv(b.ep, buffer, sizeof(buffer), NULL, FI_ADDR_UNSPEC, NULL));
	OK(fi_send(a.ep, data, sizeof(data), NULL, 1, NULL));
	next(&a);
	next(&b);
	EXPECT(strcmp(buffer, "fenced"), 0);
}

/* A message of an endpoint that is not in the receiver's address vector has no source. */
static void unknown_source(void)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry entry;
	struct fid_av *other;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char name[FI_NAME_MAX], buffer[8];
	size_t length = sizeof(name);
	fi_addr_t source = 0;

	OK(fi_av_open(domain, &av_attr, &other, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &other->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(ep));
	OK(fi_getname(&ep->fid, name, &length));
	OK(fi_recv(ep, buffer, sizeof(buffer), NULL, FI_ADDR_UNSPEC, NULL));
	EXPECT(fi_av_insert(av, name, 1, NULL, 0, NULL), 1);
	OK(fi_send(a.ep, "unknown", 8, NULL, 2, NULL));
	while (fi_cq_readfrom(cq, &entry, 1, &source) == -FI_EAGAIN)
		fi_cq_read(a.cq, NULL, 0);
	EXPECT(source, FI_ADDR_NOTAVAIL);
	EXPECT(strcmp(buffer, "unknown"), 0);
	next(&a);
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&other->fid));
}

static void long_double(void)
{
	long double value = 1, result;
	struct fi_atomic_attr attr;
	size_t count;

	EXPECT(fi_query_atomic(domain, FI_LONG_DOUBLE, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
	EXPECT(fi_atomicvalid(a.ep, FI_LONG_DOUBLE, FI_SUM, &count), -FI_EOPNOTSUPP);
	EXPECT(fi_fetch_atomicvalid(a.ep, FI_LONG_DOUBLE_COMPLEX, FI_SUM, &count), -FI_EOPNOTSUPP);
	EXPECT(fi_atomic(a.ep, &value, 1, NULL, 1, 0, 1, FI_LONG_DOUBLE, FI_SUM, NULL), -FI_EOPNOTSUPP);
	EXPECT(fi_fetch_atomic(a.ep, &value, 1, NULL, &result, NULL, 1, 0, 1, FI_LONG_DOUBLE, FI_SUM, NULL), -FI_EOPNOTSUPP);
}

int main(void)
{
	setbuf(stdout, NULL);
	hint(FI_FENCE, 0);
	hint(FI_SOURCE | FI_SOURCE_ERR, 0);
	hint(FI_TRIGGER | FI_SHARED_AV, 0);
	hint(0, FI_FENCE);
	open_pair(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE);
	sets();
	fence();
	unknown_source();
	long_double();
	OK(fi_close(&a.ep->fid));
	OK(fi_close(&b.ep->fid));
	close_pair();
	printf("ok\n");
	return 0;
}
