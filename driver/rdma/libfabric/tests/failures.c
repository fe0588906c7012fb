/* Program of a test: one of two processes that exchange numbers until an operation fails.
 *
 *	failures first [ROUNDS]		prints "address ADDRESS", and waits for the other process
 *	failures ADDRESS [ROUNDS]	the other process
 *
 * Prints "round N" now and then, and "ok" after ROUNDS rounds. After a failure it prints "error NUMBER TEXT", closes its objects and returns 3. */
#include "expect.h"

enum { REPORTED = 64, FAILED = 3 };

static struct fi_info *hints, *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;

static void finish(int status)
{
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	exit(status);
}

static void failed(int error, const char *text)
{
	printf("error %d %s\n", error, text);
	finish(FAILED);
}

static void open_endpoint(void)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };

	hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = FI_MSG | FI_DIRECTED_RECV;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(ep));
}

/* Takes the next completion, of a posted operation or of none. */
static void take(ssize_t posted)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t count;

	if (posted)
		failed((int) -posted, fi_strerror((int) -posted));
	while ((count = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN) ;
	if (count == 1)
		return;
	EXPECT(fi_cq_readerr(cq, &error, 0), 1);
	failed(error.err, fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0));
}

static void send(const void *data, size_t length)
{
	take(fi_send(ep, data, length, NULL, 0, NULL));
}

static void receive(void *data, size_t length, fi_addr_t source)
{
	take(fi_recv(ep, data, length, NULL, source, NULL));
}

int main(int argc, char **argv)
{
	char name[FI_NAME_MAX] = { 0 }, peer[FI_NAME_MAX] = { 0 };
	size_t length = sizeof(name);
	long rounds = argc > 2 ? atol(argv[2]) : 0;
	int is_first = strcmp(argv[1], "first") == 0;

	setbuf(stdout, NULL);
	open_endpoint();
	OK(fi_getname(&ep->fid, name, &length));
	if (is_first) {
		printf("address %s\n", name);
		receive(peer, sizeof(peer), FI_ADDR_UNSPEC);
	} else {
		strncpy(peer, argv[1], sizeof(peer) - 1);
	}
	EXPECT(fi_av_insert(av, peer, 1, NULL, 0, NULL), 1);
	if (!is_first)
		send(name, sizeof(name));
	for (long round = 1, number; rounds == 0 || round <= rounds; round++) {
		if (is_first)
			send(&round, sizeof(round));
		receive(&number, sizeof(number), 0);
		EXPECT(number, round);
		if (!is_first)
			send(&number, sizeof(number));
		if (round % REPORTED == 0)
			printf("round %ld\n", round);
	}
	printf("ok\n");
	finish(0);
}
