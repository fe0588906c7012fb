/* Program of a test: messages to an address at which no process is end with an error. Prints "ok" at its end. */
#include "expect.h"

int main(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry entry;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char nobody[FI_NAME_MAX] = "fpga://127.0.0.1:9", data[100] = { 0 };
	ssize_t count;

	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = FI_TAGGED;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	EXPECT(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	EXPECT(fi_domain(fabric, info, &domain, NULL), 0);
	EXPECT(fi_av_open(domain, &av_attr, &av, NULL), 0);
	EXPECT(fi_endpoint(domain, info, &ep, NULL), 0);
	EXPECT(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
	EXPECT(fi_ep_bind(ep, &av->fid, 0), 0);
	EXPECT(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EXPECT(fi_enable(ep), 0);
	EXPECT(fi_av_insert(av, nobody, 1, NULL, 0, NULL), 1);
	for (int number = 0; number < 2; number++)
		EXPECT(fi_tsend(ep, data, sizeof(data), NULL, 0, 1, NULL), 0);
	EXPECT(fi_tinject(ep, data, sizeof(data), 0, 1), 0);
	for (int number = 0; number < 3; number++) {
		struct fi_cq_err_entry error = { 0 };
		while ((count = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN) ;
		EXPECT(count, -FI_EAVAIL);
		EXPECT(fi_cq_readerr(cq, &error, 0), 1);
		EXPECT(error.err, FI_EHOSTUNREACH);
	}
	EXPECT(fi_close(&ep->fid), 0);
	EXPECT(fi_close(&cq->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	printf("ok\n");
	return 0;
}
