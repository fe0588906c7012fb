/* Program of a test: descriptions, objects and wrong calls, through libfabric. Prints "ok" at its end. */
#include "expect.h"

#define API FI_VERSION(1, 17)

static struct fi_info *hints(void)
{
	struct fi_info *hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("fpga");
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	return hints;
}

static void descriptions(void)
{
	struct fi_info *wanted = hints(), *info;

	EXPECT(fi_getinfo(API, NULL, NULL, 0, wanted, &info), 0);
	EXPECT(strcmp(info->fabric_attr->prov_name, "fpga"), 0);
	EXPECT(info->ep_attr->type, FI_EP_RDM);
	EXPECT(info->fabric_attr->api_version, API);
	struct fi_info *copy = fi_dupinfo(info);
	EXPECT(strcmp(copy->src_addr, "fpga://0.0.0.0:0"), 0);
	fi_freeinfo(copy);
	fi_freeinfo(info);

	EXPECT(fi_getinfo(API, "127.0.0.1", "9228", 0, wanted, &info), 0);
	EXPECT(strcmp(info->dest_addr, "fpga://127.0.0.1:9228"), 0);
	EXPECT(info->dest_addrlen, 64);
	fi_freeinfo(info);
	EXPECT(fi_getinfo(API, "127.0.0.1", "9228", FI_SOURCE, wanted, &info), 0);
	EXPECT(strcmp(info->src_addr, "fpga://127.0.0.1:9228"), 0);
	fi_freeinfo(info);
	EXPECT(fi_getinfo(API, "fpga://node/7", NULL, 0, wanted, &info), 0);
	EXPECT(strcmp(info->dest_addr, "fpga://node/7"), 0);
	fi_freeinfo(info);

	/* Old versions of the interface have two modes of registration. */
	wanted->domain_attr->mr_mode = 1;
	EXPECT(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, wanted, &info), 0);
	EXPECT(info->domain_attr->mr_mode, 1);
	fi_freeinfo(info);
	wanted->domain_attr->mr_mode = 0;
	EXPECT(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, wanted, &info), 0);
	EXPECT(info->domain_attr->mr_mode, 2);
	fi_freeinfo(info);

	wanted->caps = FI_MSG | FI_COLLECTIVE;
	EXPECT(fi_getinfo(API, NULL, NULL, 0, wanted, &info), -FI_ENODATA);
	wanted->caps = FI_MSG;
	wanted->ep_attr->type = FI_EP_MSG;
	EXPECT(fi_getinfo(API, NULL, NULL, 0, wanted, &info), -FI_ENODATA);
	wanted->ep_attr->type = FI_EP_RDM;
	wanted->domain_attr->name = strdup("other");
	EXPECT(fi_getinfo(API, NULL, NULL, 0, wanted, &info), -FI_ENODATA);
	fi_freeinfo(wanted);
}

static void queues(struct fid_domain *domain)
{
	enum fi_cq_format formats[] = {
		FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED,
	};
	enum fi_wait_obj waits[] = { FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD };
	struct fi_cq_tagged_entry entries[4];
	struct fid_cq *cq;
	int fd;

	for (int format = 0; format < 4; format++) {
		for (int wait = 0; wait < 3; wait++) {
			struct fi_cq_attr attr = { .format = formats[format], .wait_obj = waits[wait], .size = 128 };
			EXPECT(fi_cq_open(domain, &attr, &cq, NULL), 0);
			EXPECT(fi_cq_read(cq, entries, 4), -FI_EAGAIN);
			EXPECT(fi_cq_sread(cq, entries, 4, NULL, 1), wait ? -FI_EAGAIN : -FI_EINVAL);
			EXPECT(fi_cq_signal(cq), wait ? 0 : -FI_ENOSYS);
			EXPECT(fi_control(&cq->fid, FI_GETWAIT, &fd), wait == 2 ? 0 : -FI_ENOSYS);
			struct fi_cq_err_entry error = { 0 };
			EXPECT(fi_cq_readerr(cq, &error, 0), -FI_EAGAIN);
			EXPECT(fi_cq_strerror(cq, FI_ETRUNC, NULL, NULL, 0) != NULL, 1);
			EXPECT(fi_close(&cq->fid), 0);
		}
	}
	struct fi_cq_attr mutex = { .wait_obj = FI_WAIT_MUTEX_COND };
	EXPECT(fi_cq_open(domain, &mutex, &cq, NULL), -FI_ENOSYS);
	struct fi_cq_attr flags = { .flags = 1ULL << 50 };
	EXPECT(fi_cq_open(domain, &flags, &cq, NULL), -FI_EBADFLAGS);
	EXPECT(fi_cq_open(domain, NULL, &cq, NULL), -FI_EINVAL);
	struct fid_poll *poll;
	EXPECT(fi_poll_open(domain, NULL, &poll), -FI_ENOSYS);
}

static void memory(struct fid_domain *domain)
{
	char buffer[64];
	struct fid_mr *mr;

	EXPECT(fi_mr_reg(domain, buffer, 64, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	EXPECT(fi_mr_key(mr) != FI_KEY_NOTAVAIL, 1);
	EXPECT(fi_mr_enable(mr), 0);
	EXPECT(fi_mr_bind(mr, &domain->fid, 0), -FI_ENOSYS);
	EXPECT(fi_close(&domain->fid), -FI_EBUSY);
	EXPECT(fi_close(&mr->fid), 0);
	struct iovec iov[2] = { { buffer, 8 }, { buffer, 8 } };
	struct fi_mr_attr attr = { .mr_iov = iov, .iov_count = 1, .access = FI_REMOTE_READ };
	EXPECT(fi_mr_regattr(domain, &attr, 0, &mr), 0);
	EXPECT(fi_close(&mr->fid), 0);
	attr.iov_count = 2;
	EXPECT(fi_mr_regattr(domain, &attr, 0, &mr), -FI_EINVAL);
	attr.iov_count = 1;
	attr.iface = FI_HMEM_CUDA;
	EXPECT(fi_mr_regattr(domain, &attr, 0, &mr), -FI_EOPNOTSUPP);
	EXPECT(fi_mr_reg(domain, buffer, 64, 1ULL << 50, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	struct fi_atomic_attr atomic;
	EXPECT(fi_query_atomic(domain, FI_UINT64, FI_SUM, &atomic, 0), 0);
	EXPECT(atomic.size, 8);
	EXPECT(fi_query_atomic(domain, FI_UINT64, FI_CSWAP, &atomic, 0), -FI_EOPNOTSUPP);
	EXPECT(fi_query_atomic(domain, FI_UINT64, FI_CSWAP, &atomic, FI_COMPARE_ATOMIC), 0);
}

static void endpoints(struct fid_fabric *fabric, struct fid_domain *domain, struct fi_info *info)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
	struct fid_ep *ep, *other;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_pep *pep;
	size_t value = 100, length = sizeof(value);

	EXPECT(fi_endpoint(domain, info, &ep, NULL), 0);
	EXPECT(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
	EXPECT(fi_cntr_open(domain, &cntr_attr, &cntr, NULL), 0);
	EXPECT(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
	EXPECT(fi_av_open(domain, &av_attr, &av, NULL), 0);
	EXPECT(av_attr.type, FI_AV_TABLE);

	fi_addr_t address = 5;
	EXPECT(fi_av_insert(av, "fpga://127.0.0.1:9", 1, &address, 0, NULL), 1);
	EXPECT(address, 0);
	EXPECT(fi_av_insertsvc(av, "127.0.0.1", "10", &address, 0, NULL), 1);
	EXPECT(address, 1);
	EXPECT(fi_av_insert(av, "10.0.0.1", 1, &address, 0, NULL), 0);
	EXPECT(address, FI_ADDR_NOTAVAIL);
	char text[64];
	size_t space = sizeof(text);
	EXPECT(fi_av_lookup(av, 1, text, &space), 0);
	EXPECT(strcmp(text, "fpga://127.0.0.1:10"), 0);
	space = sizeof(text);
	EXPECT(fi_av_straddr(av, "fpga://127.0.0.1:9", text, &space) == text, 1);

	EXPECT(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)), 0);
	EXPECT(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
	EXPECT(value, 100);
	EXPECT(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, 1000, &value, &length), -FI_ENOPROTOOPT);

	EXPECT(fi_enable(ep), -FI_ENOAV);
	EXPECT(fi_ep_bind(ep, &av->fid, 1), -FI_EBADFLAGS);
	EXPECT(fi_ep_bind(ep, &av->fid, 0), 0);
	EXPECT(fi_enable(ep), -FI_ENOCQ);
	EXPECT(fi_ep_bind(ep, &cq->fid, 0), -FI_EINVAL);
	EXPECT(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION), 0);
	EXPECT(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
	EXPECT(fi_ep_bind(ep, &cntr->fid, FI_WRITE | FI_READ), 0);
	EXPECT(fi_ep_bind(ep, &eq->fid, 0), 0);
	EXPECT(fi_ep_bind(ep, &domain->fid, 0), -FI_EINVAL);
	EXPECT(fi_send(ep, text, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	EXPECT(fi_trecv(ep, text, 1, NULL, 0, 0, 0, NULL), -FI_EOPBADSTATE);
	EXPECT(fi_connect(ep, text, NULL, 0), -FI_ENOSYS);
	EXPECT(fi_tx_context(ep, 0, NULL, &other, NULL), -FI_ENOSYS);
	EXPECT(fi_scalable_ep(domain, info, &other, NULL), -FI_ENOSYS);
	EXPECT(fi_passive_ep(fabric, info, &pep, NULL), -FI_ENOSYS);
	void *ops;
	EXPECT(fi_open_ops(&ep->fid, "other", 0, &ops, NULL), -FI_ENOSYS);

	EXPECT(fi_close(&cq->fid), -FI_EBUSY);
	EXPECT(fi_close(&av->fid), -FI_EBUSY);
	EXPECT(fi_close(&cntr->fid), -FI_EBUSY);
	EXPECT(fi_close(&eq->fid), -FI_EBUSY);
	EXPECT(fi_close(&ep->fid), 0);
	EXPECT(fi_close(&cq->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&cntr->fid), 0);
	EXPECT(fi_close(&eq->fid), 0);
}

int main(void)
{
	struct fi_info *wanted = hints(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;

	setbuf(stdout, NULL);
	descriptions();
	EXPECT(fi_getinfo(API, NULL, NULL, 0, wanted, &info), 0);
	EXPECT(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	EXPECT(fabric->api_version, API);
	EXPECT(fi_domain(fabric, info, &domain, NULL), 0);
	EXPECT(fi_close(&fabric->fid), -FI_EBUSY);
	queues(domain);
	memory(domain);
	endpoints(fabric, domain, info);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(wanted);
	printf("ok\n");
	return 0;
}
