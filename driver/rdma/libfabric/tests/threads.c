/* Program of a test: threads that use the same objects at the same time (FI_THREAD_SAFE): messages, remote access, atomic operations, cancelled
 * receives, registrations, endpoints that are opened and closed. The arguments are the number of rounds of each thread, and "manual" or
 * "auto" for the progress. Prints "ok" at its end. */
#include "pair.h"
#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, MAX_LENGTH = 300000 };

/* Operation of one thread. Any thread may take its completion. */
struct operation {
	struct fi_context context;
	int expected;
	int is_done;
};

static long rounds;
static int has_ended;
static uint64_t sum;
static struct fid_mr *sum_mr;

/* Takes completions of one side, and notes the ends of their operations. */
static void poll_queue(struct side *side, int timeout)
{
	struct fi_cq_tagged_entry entries[4];
	struct fi_cq_err_entry error = { 0 };
	struct operation *operation;
	ssize_t count = timeout ? fi_cq_sread(side->cq, entries, 4, NULL, timeout) : fi_cq_read(side->cq, entries, 4);

	if (count == -FI_EAVAIL) {
		/* Another thread may have taken it. */
		if (fi_cq_readerr(side->cq, &error, 0) != 1)
			return;
		operation = error.op_context;
		EXPECT(error.err, operation->expected);
		__atomic_store_n(&operation->is_done, 1, __ATOMIC_RELEASE);
		return;
	}
	if (count != -FI_EAGAIN)
		EXPECT(count > 0 && count <= 4, 1);
	for (ssize_t at = 0; at < count; at++) {
		operation = entries[at].op_context;
		EXPECT(operation->expected, 0);
		__atomic_store_n(&operation->is_done, 1, __ATOMIC_RELEASE);
	}
}

static void wait_for(struct operation *operation)
{
	while (!__atomic_load_n(&operation->is_done, __ATOMIC_ACQUIRE)) {
		poll_queue(&a, 0);
		poll_queue(&b, 0);
		sched_yield();
	}
	operation->is_done = 0;
}

/* Posts an operation until its queue has space. */
#define POST(call)                                                       \
	do {                                                             \
		ssize_t result_;                                         \
		while ((result_ = (call)) == -FI_EAGAIN) {               \
			poll_queue(&a, 0);                               \
			poll_queue(&b, 0);                               \
		}                                                        \
		EXPECT(result_, 0);                                      \
	} while (0)

static void message(char *from, char *to, size_t length, uint64_t tag)
{
	struct operation sent = { 0 }, received = { 0 };

	memset(from, (int) tag, length);
	memset(to, 0, length);
	POST(fi_trecv(b.ep, to, length, NULL, FI_ADDR_UNSPEC, tag, 0, &received));
	POST(fi_tsend(a.ep, from, length, NULL, 1, tag, &sent));
	wait_for(&sent);
	wait_for(&received);
	EXPECT(memcmp(from, to, length), 0);
}

static void access_memory(char *from, char *to, size_t length, int value)
{
	struct operation operation = { 0 };
	struct fid_mr *mr;
	uint64_t one = 1, earlier;

	OK(fi_mr_reg(domain, to, MAX_LENGTH, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	memset(from, value, length);
	POST(fi_write(a.ep, from, length, NULL, 1, (uint64_t) to, fi_mr_key(mr), &operation));
	wait_for(&operation);
	memset(from, 0, length);
	POST(fi_read(a.ep, from, length, NULL, 1, (uint64_t) to, fi_mr_key(mr), &operation));
	wait_for(&operation);
	for (size_t at = 0; at < length; at++)
		EXPECT(from[at], (char) value);
	POST(fi_fetch_atomic(a.ep, &one, 1, NULL, &earlier, NULL, 1, (uint64_t) &sum, fi_mr_key(sum_mr), FI_UINT64, FI_SUM, &operation));
	wait_for(&operation);
	OK(fi_close(&mr->fid));
}

static void cancelled_receive(char *to, uint64_t tag)
{
	struct operation operation = { .expected = FI_ECANCELED };

	POST(fi_trecv(b.ep, to, 8, NULL, FI_ADDR_UNSPEC, tag, 0, &operation));
	OK(fi_cancel(&b.ep->fid, &operation));
	wait_for(&operation);
}

static void short_lived_endpoint(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cntr_attr cntr_attr = { 0 };
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct fid_cq *cq;
	char name[FI_NAME_MAX];
	size_t length = sizeof(name);
	fi_addr_t address;

	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_cq_open(domain, &attr, &cq, NULL));
	OK(fi_cntr_open(domain, &cntr_attr, &cntr, NULL));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(ep, &cntr->fid, FI_SEND));
	OK(fi_enable(ep));
	OK(fi_getname(&ep->fid, name, &length));
	EXPECT(fi_av_insert(av, name, 1, &address, 0, NULL), 1);
	EXPECT(fi_cq_read(cq, NULL, 0), -FI_EAGAIN);
	EXPECT(fi_cntr_read(cntr), 0);
	OK(fi_av_remove(av, &address, 1, 0));
	OK(fi_close(&ep->fid));
	OK(fi_close(&cntr->fid));
	OK(fi_close(&cq->fid));
}

static void *work(void *argument)
{
	static const size_t LENGTHS[] = { 0, 8, 4000, 20000, MAX_LENGTH };
	uint64_t number = (uint64_t) argument;
	char *from = malloc(MAX_LENGTH), *to = malloc(MAX_LENGTH);

	for (long round = 0; round < rounds; round++) {
		size_t length = LENGTHS[(size_t) round % 5];
		uint64_t tag = number << 32 | (uint64_t) round;
		message(from, to, length, tag);
		if (round % 4 == 0)
			access_memory(from, to, length ? length : 1, (int) round + 1);
		if (round % 8 == 1)
			cancelled_receive(to, tag | 1ULL << 60);
		if (round % 32 == 2)
			short_lived_endpoint();
	}
	free(from);
	free(to);
	return NULL;
}

/* A thread that sleeps until completions arrive. */
static void *sleep_for_completions(void *side)
{
	while (!__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE))
		poll_queue(side, 5);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS], sleepers[2];

	setbuf(stdout, NULL);
	rounds = argc > 1 ? atol(argv[1]) : 100;
	progress = argc > 2 && strcmp(argv[2], "auto") == 0 ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	open_pair(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
	EXPECT(info->domain_attr->threading, FI_THREAD_SAFE);
	OK(fi_mr_reg(domain, &sum, sizeof(sum), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &sum_mr, NULL));
	for (uint64_t number = 0; number < THREADS; number++)
		OK(pthread_create(&threads[number], NULL, work, (void *) number));
	OK(pthread_create(&sleepers[0], NULL, sleep_for_completions, &a));
	OK(pthread_create(&sleepers[1], NULL, sleep_for_completions, &b));
	for (int number = 0; number < THREADS; number++)
		OK(pthread_join(threads[number], NULL));
	__atomic_store_n(&has_ended, 1, __ATOMIC_RELEASE);
	for (int number = 0; number < 2; number++)
		OK(pthread_join(sleepers[number], NULL));
	EXPECT(sum, (rounds + 3) / 4 * THREADS);
	OK(fi_close(&sum_mr->fid));
	OK(fi_close(&a.ep->fid));
	OK(fi_close(&b.ep->fid));
	close_pair();
	printf("ok\n");
	return 0;
}
