/* Two endpoints of one process, which exchange data through simulated cards. */
#include "expect.h"

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
};

static struct fi_info *hints, *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct side a, b;
static enum fi_progress progress = FI_PROGRESS_UNSPEC;

/* Takes the next completion of one side while both make progress. */
__attribute__((unused)) static struct fi_cq_tagged_entry next(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	struct side *other = side == &a ? &b : &a;
	ssize_t count;

	while ((count = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		fi_cq_read(other->cq, NULL, 0);
	if (count < 0) {
		fi_cq_readerr(side->cq, &error, 0);
		printf("completion failed: %s\n", fi_cq_strerror(side->cq, error.prov_errno, error.err_data, NULL, 0));
		exit(1);
	}
	/* For the thread sanitizer, which does not see that the completion follows the other side's accesses to memory: the memory through which the
	 * cards exchange packets is mapped twice. The call takes the other side's lock, and finds nothing to cancel. */
	fi_cancel(&other->ep->fid, &entry);
	return entry;
}

static void open_side(struct side *side)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	char name[FI_NAME_MAX];
	size_t length = sizeof(name);

	OK(fi_endpoint(domain, info, &side->ep, NULL));
	OK(fi_cq_open(domain, &attr, &side->cq, NULL));
	OK(fi_ep_bind(side->ep, &av->fid, 0));
	OK(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(side->ep));
	OK(fi_getname(&side->ep->fid, name, &length));
	EXPECT(fi_av_insert(av, name, 1, NULL, 0, NULL), 1);
}

/* Opens the domain and both endpoints. */
static void open_pair(uint64_t caps)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };

	hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = caps;
	hints->domain_attr->data_progress = progress;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	info->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	open_side(&a);
	open_side(&b);
}

/* Closes the endpoints' queues and everything below them. */
static void close_pair(void)
{
	OK(fi_close(&a.cq->fid));
	OK(fi_close(&b.cq->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}
