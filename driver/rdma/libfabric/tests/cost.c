/* Program of a test, and for figures: time and processor time per message between two processes, by any provider.
 *
 *   cost PROVIDER LENGTH COUNT [WINDOW]
 *
 * A message of LENGTH bytes goes back and forth COUNT times; with WINDOW, one rank sends COUNT messages, WINDOW of them at a time. */
#include "expect.h"
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POST(call)                                          \
	do {                                                \
		ssize_t result_;                            \
		while ((result_ = (call)) == -FI_EAGAIN)    \
			reap();                             \
		OK(result_);                                \
	} while (0)

struct shared {
	char names[2][FI_NAME_MAX];
	int arrived[2];
	double user[2], system[2];
};

static struct shared *shared;
static int rank;
static struct fid_ep *ep;
static struct fid_cq *cq;
static int sent, received;

static void reap(void)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t count = fi_cq_read(cq, entries, 16);

	if (count == -FI_EAGAIN)
		return;
	if (count < 0) {
		printf("a completion has failed: %s\n", fi_strerror((int) -count));
		exit(1);
	}
	for (ssize_t i = 0; i < count; i++)
		entries[i].flags & FI_RECV ? received++ : sent++;
}

static void barrier(void)
{
	int round = shared->arrived[rank] + 1;

	__atomic_store_n(&shared->arrived[rank], round, __ATOMIC_RELEASE);
	while (__atomic_load_n(&shared->arrived[!rank], __ATOMIC_ACQUIRE) < round) {
		reap();
		sched_yield();
	}
}

static double seconds(struct timeval time)
{
	return (double) time.tv_sec + (double) time.tv_usec * 1e-6;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* Exchanges messages. Completions of the warm-up count from zero. */
static void exchange(char *from, char *to, size_t length, int count, int window)
{
	sent = received = 0;
	if (window == 0) {
		for (int i = 0; i < count; i++) {
			POST(fi_trecv(ep, to, length, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
			if (rank == 1)
				while (received <= i)
					reap();
			POST(fi_tsend(ep, from, length, NULL, (fi_addr_t) !rank, 1, NULL));
			while (sent <= i || received <= i)
				reap();
		}
		return;
	}
	for (int i = 0; i < count; i++) {
		while (i - (rank ? received : sent) >= window)
			reap();
		if (rank == 0)
			POST(fi_tsend(ep, from, length, NULL, 1, 1, NULL));
		else
			POST(fi_trecv(ep, to, length, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	}
	while ((rank ? received : sent) < count)
		reap();
}

static void run(const char *provider, size_t length, int count, int window)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	size_t size = FI_NAME_MAX;
	char *from = calloc(1, length + 1), *to = calloc(1, length + 1);
	struct rusage before, after;

	hints->fabric_attr->prov_name = strdup(provider);
	hints->caps = FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	OK(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(ep));
	OK(fi_getname(&ep->fid, shared->names[rank], &size));
	barrier();
	for (int other = 0; other < 2; other++)
		OK(fi_av_insert(av, shared->names[other], 1, NULL, 0, NULL) - 1);
	barrier();
	exchange(from, to, length, count / 10 + 1, window);
	barrier();
	getrusage(RUSAGE_SELF, &before);
	double begun = now();
	exchange(from, to, length, count, window);
	double elapsed = now() - begun;
	getrusage(RUSAGE_SELF, &after);
	shared->user[rank] = seconds(after.ru_utime) - seconds(before.ru_utime);
	shared->system[rank] = seconds(after.ru_stime) - seconds(before.ru_stime);
	barrier();
	if (rank == 0) {
		double messages = window ? count : 2.0 * count;
		printf("%s, %zu bytes, window %d: %.2f us per message; processor time per message %.2f us user, %.2f us system\n", provider, length,
		       window, elapsed * 1e6 / messages, (shared->user[0] + shared->user[1]) * 1e6 / messages,
		       (shared->system[0] + shared->system[1]) * 1e6 / messages);
	}
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	free(from);
	free(to);
}

int main(int count, char **arguments)
{
	int status, is_ok = 1;

	if (count < 4)
		return 2;
	setbuf(stdout, NULL);
	alarm(120);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (rank = 0; rank < 2; rank++) {
		if (fork() == 0) {
			alarm(120);
			run(arguments[1], strtoull(arguments[2], NULL, 10), atoi(arguments[3]), count > 4 ? atoi(arguments[4]) : 0);
			exit(0);
		}
	}
	for (int ended = 0; ended < 2; ended++)
		if (wait(&status) < 0 || status != 0)
			is_ok = 0;
	if (is_ok)
		printf("ok\n");
	return !is_ok;
}
