/* Program of a test: counts allocations of the process while two endpoints exchange data in the steady state. Prints "ok" at its end. */
#include "expect.h"
#include <stdatomic.h>

#define LARGE (1 << 20)
/* From this length on the card accesses the memory of both sides in place: three allocations for each mapping. */
#define DIRECT (128 << 10)
#define MAPPINGS 8

/* The C library's allocator, which the provider uses, too. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static atomic_int is_counting, allocations;

static void count(void)
{
	if (atomic_load(&is_counting))
		atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t size)
{
	count();
	return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
	count();
	return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size)
{
	count();
	return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	count();
	return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	count();
	*out = __libc_memalign(alignment, size);
	return *out ? 0 : FI_ENOMEM;
}

static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_ep *ep[2];
static struct fid_cq *cq[2];
static char *from, *to;
static uint64_t old;

static void wait_for(int side)
{
	struct fi_cq_tagged_entry entry;
	ssize_t result;

	while ((result = fi_cq_read(cq[side], &entry, 1)) == -FI_EAGAIN)
		fi_cq_read(cq[!side], NULL, 0);
	OK(result - 1);
}

/* One operation of each kind; MAPPINGS of memory that are not regions. */
static void exchange(size_t length)
{
	uint64_t one = 1;
	struct iovec range = { from, length };
	struct fi_msg message = { .msg_iov = &range, .iov_count = 1, .addr = 1 };

	OK(fi_recv(ep[1], to, LARGE, NULL, FI_ADDR_UNSPEC, NULL));
	OK(fi_send(ep[0], from, length, NULL, 1, NULL));
	wait_for(1);
	wait_for(0);
	OK(fi_trecv(ep[1], to, LARGE, NULL, 0, 7, 1, NULL));
	OK(fi_tsenddata(ep[0], from, length, NULL, 3, 1, 6, NULL));
	wait_for(1);
	wait_for(0);
	if (length <= 3968) {
		OK(fi_recv(ep[1], to, LARGE, NULL, FI_ADDR_UNSPEC, NULL));
		OK(fi_inject(ep[0], from, length, 1));
		wait_for(1);
		OK(fi_recv(ep[1], to, LARGE, NULL, FI_ADDR_UNSPEC, NULL));
		OK(fi_sendmsg(ep[0], &message, FI_INJECT | FI_COMPLETION | FI_DELIVERY_COMPLETE));
		wait_for(1);
		wait_for(0);
	}
	/* Before its receive. */
	OK(fi_tsend(ep[0], from, length, NULL, 1, 9, NULL));
	for (int i = 0; i < 50; i++)
		fi_cq_read(cq[1], NULL, 0);
	OK(fi_trecv(ep[1], to, LARGE, NULL, FI_ADDR_UNSPEC, 9, 0, NULL));
	wait_for(1);
	wait_for(0);
	OK(fi_write(ep[0], from, length, NULL, 1, 0, 5, NULL));
	wait_for(0);
	OK(fi_read(ep[0], from, length, NULL, 1, 0, 5, NULL));
	wait_for(0);
	OK(fi_fetch_atomic(ep[0], &one, 1, NULL, &old, NULL, 1, 0, 5, FI_UINT64, FI_SUM, NULL));
	wait_for(0);
}

int main(void)
{
	static const size_t lengths[] = { 8, 4096, 16000, 100000, LARGE };
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_fabric *fabric;
	struct fid_mr *mr;
	char name[FI_NAME_MAX];

	setbuf(stdout, NULL);
	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	for (int side = 0; side < 2; side++) {
		size_t size = sizeof(name);
		OK(fi_endpoint(domain, info, &ep[side], NULL));
		OK(fi_cq_open(domain, &cq_attr, &cq[side], NULL));
		OK(fi_ep_bind(ep[side], &av->fid, 0));
		OK(fi_ep_bind(ep[side], &cq[side]->fid, FI_TRANSMIT | FI_RECV));
		OK(fi_enable(ep[side]));
		OK(fi_getname(&ep[side]->fid, name, &size));
		OK(fi_av_insert(av, name, 1, NULL, 0, NULL) - 1);
	}
	from = calloc(1, LARGE);
	to = calloc(1, LARGE);
	OK(fi_mr_reg(domain, to, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		int rounds = lengths[i] > 16000 ? 30 : 200;
		for (int round = 0; round < rounds; round++)
			exchange(lengths[i]);
		/* Buffers of the simulated network grow while more packets wait than ever before, which depends on the processor's load. */
		int tries = 0, expected = lengths[i] >= DIRECT ? 20 * 3 * MAPPINGS : 0;
		do {
			atomic_store(&allocations, 0);
			atomic_store(&is_counting, 1);
			for (int round = 0; round < 20; round++)
				exchange(lengths[i]);
			atomic_store(&is_counting, 0);
		} while (allocations != expected && ++tries < 10);
		if (allocations != expected) {
			printf("%d allocations in 20 rounds of %zu bytes\n", allocations, lengths[i]);
			return 1;
		}
	}
	OK(fi_close(&mr->fid));
	for (int side = 0; side < 2; side++) {
		OK(fi_close(&ep[side]->fid));
		OK(fi_close(&cq[side]->fid));
	}
	OK(fi_close(&av->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	free(from);
	free(to);
	printf("ok\n");
	return 0;
}
