/* Processes of a test that share memory: barriers, content of messages, libfabric's objects. */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define RANKS 4
/* Operations by which the fastest rank may be ahead of the slowest one. */
#define AHEAD 2048

#define FAIL(...)                                                            \
	do {                                                                 \
		printf("rank %d, line %d: ", rank, __LINE__);                \
		printf(__VA_ARGS__);                                         \
		printf("\n");                                                \
		exit(1);                                                     \
	} while (0)
#define CHECK(condition, ...)                 \
	do {                                  \
		if (!(condition))             \
			FAIL(__VA_ARGS__);    \
	} while (0)
#define OK(call)                                                                            \
	do {                                                                                \
		long long result_ = (long long) (call);                                     \
		CHECK(result_ == 0, "%s is %lld (%s)", #call, result_, fi_strerror(-(int) result_)); \
	} while (0)

/* Memory of all ranks. */
struct shared {
	char names[RANKS][FI_NAME_MAX];
	uint64_t arrived[RANKS];
	uint64_t position[RANKS];
	/* By sender and receiver. */
	uint64_t writes_with_data[RANKS][RANKS];
	/* By issuing rank and target. */
	uint64_t adds[RANKS][RANKS], fetches[RANKS][RANKS], fetched[RANKS][RANKS];
};

static struct shared *shared;
static int rank;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_cntr *sends, *receives, *reads, *writes;

static uint64_t mixed(uint64_t value)
{
	value += 0x9e3779b97f4a7c15;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

/* Fills memory with the content that belongs to `key`. */
static void fill(char *at, size_t length, uint64_t key)
{
	uint64_t word;

	for (size_t i = 0; i < length; i += 8) {
		word = mixed(key) + i * 0x9e3779b97f4a7c15;
		memcpy(at + i, &word, length - i < 8 ? length - i : 8);
	}
}

static int is_filled(const char *at, size_t length, uint64_t key)
{
	uint64_t word;

	for (size_t i = 0; i < length; i += 8) {
		word = mixed(key) + i * 0x9e3779b97f4a7c15;
		if (memcmp(at + i, &word, length - i < 8 ? length - i : 8))
			return 0;
	}
	return 1;
}

static uint64_t load(const uint64_t *value)
{
	return __atomic_load_n(value, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *value, uint64_t to)
{
	__atomic_store_n(value, to, __ATOMIC_RELEASE);
}

/* Opens an endpoint of this process. */
static void open_endpoint(enum fi_progress progress)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP };
	size_t length = FI_NAME_MAX;

	hints->fabric_attr->prov_name = strdup("fpga");
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
	hints->mode = ~0ULL;
	hints->domain_attr->data_progress = hints->domain_attr->control_progress = progress;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &sends, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &receives, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &reads, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &writes, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(ep, &sends->fid, FI_SEND));
	OK(fi_ep_bind(ep, &receives->fid, FI_RECV));
	OK(fi_ep_bind(ep, &reads->fid, FI_READ));
	OK(fi_ep_bind(ep, &writes->fid, FI_WRITE));
	OK(fi_enable(ep));
	OK(fi_getname(&ep->fid, shared->names[rank], &length));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void close_endpoint(void)
{
	OK(fi_close(&ep->fid));
	for (struct fid_cntr **cntr = (struct fid_cntr *[]) { sends, receives, reads, writes, NULL }; *cntr; cntr++)
		OK(fi_close(&(*cntr)->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
}

/* Runs `body` in RANKS processes. Returns whether all have succeeded. */
static int run_ranks(void (*body)(void))
{
	pid_t processes[RANKS], ended;
	int status, is_ok = 1;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 0;
	for (rank = 0; rank < RANKS; rank++) {
		processes[rank] = fork();
		if (processes[rank] == 0) {
			body();
			exit(0);
		}
	}
	for (int count = 0; count < RANKS; count++) {
		ended = wait(&status);
		if (status == 0)
			continue;
		if (is_ok)
			printf("process %d has ended with status %#x\n", (int) ended, status);
		is_ok = 0;
		for (int other = 0; other < RANKS; other++)
			if (processes[other] != ended)
				kill(processes[other], SIGKILL);
	}
	return is_ok;
}
