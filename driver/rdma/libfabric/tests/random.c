/* Program of a test: random operations of four processes. All derive the same list of operations from the seed, so that each knows what it sends
 * and receives, and checks it. Arguments: number of operations, seed, "manual" or "auto". Prints "ok" at its end. */
#include "ranks.h"

enum kind { DIRECTED, WILD, EXACT, UNTAGGED, PEEKED, CANCELLED, WRITE, ATOMIC };
/* What a completion belongs to. */
enum step { SEND, RECEIVE, BUFFER, LOOK, TAKE, CANCEL, WRITING, READING, ADD, COMPARE };

/* Operations of this rank in progress. */
#define WINDOW 64
#define LANES 2
#define MAX_LENGTH (1 << 20)
#define MAX_UNTAGGED 40000
#define BUFFER_SIZE (1 << 18)
/* Memory of each rank for one writer: slots, and words for injected writes. */
#define SLOTS 4
#define SLOT 20000
#define WORDS 65536
#define PART (SLOTS * SLOT + MAX_LENGTH + WORDS * 8)
/* Words for atomic operations: two sums, and one for each rank. */
#define ATOMICS (RANKS * PART)
#define MEMORY (ATOMICS + 8 * (2 + RANKS))

struct plan {
	enum kind kind;
	int from, to, lane, how;
	size_t length;
};

struct op {
	struct fi_context2 context;
	enum step step;
	uint64_t index;
	struct plan plan;
	/* Position among the receives of its kind. */
	uint64_t order;
	size_t size, slot;
	uint64_t old, operand, compare;
	int is_wrong, is_claimed;
	struct op *next;
	/* Exact, so that tools find accesses beyond. */
	char data[];
};

/* Message that has come to a receive: they are in the order of the receives. */
struct match {
	uint64_t order, index;
	int from, lane;
};

static uint64_t operations, seed;
static uint64_t at;
static int outstanding, is_done;
static char *memory;
static struct fid_mr *mr;
static struct op *delayed, *peeks;
static uint64_t orders, untagged_expected, untagged_done, written;
static struct match *wild, *untagged;
static size_t wilds, untaggeds;
static uint64_t sent, received, failed_receives, was_read, was_written;
static char is_busy[RANKS][SLOTS + 1];
static uint64_t words[RANKS];
static char has_word[RANKS];

static struct plan plan_of(uint64_t index)
{
	static const enum kind kinds[20] = { DIRECTED, DIRECTED, DIRECTED, DIRECTED, DIRECTED, WILD, WILD, WILD, EXACT, EXACT,
		EXACT, UNTAGGED, UNTAGGED, UNTAGGED, PEEKED, CANCELLED, WRITE, WRITE, ATOMIC, ATOMIC };
	uint64_t bits = mixed(seed * 0x100000001b3 ^ index), size = mixed(bits);
	struct plan plan = { .kind = kinds[bits % 20], .from = bits >> 8 & 3, .to = bits >> 10 & 3, .lane = bits >> 12 & 1, .how = bits >> 16 & 0xff };
	uint64_t choice = size % 1000, value = size >> 16;

	plan.length = value % (choice < 500 ? 65 : choice < 750 ? 1025 : choice < 950 ? 17000 : choice < 995 ? 65537 : MAX_LENGTH + 1);
	if (plan.kind == WILD)
		plan.length %= plan.lane ? 20001 : 257;
	if (plan.kind == UNTAGGED)
		plan.length %= choice < 900 ? 2001 : MAX_UNTAGGED + 1;
	return plan;
}

static uint64_t tag_of(uint64_t index, const struct plan *plan)
{
	uint64_t tag = (uint64_t) plan->kind << 56 | (uint64_t) plan->lane << 48;
	return plan->kind == DIRECTED ? tag : tag | (uint64_t) plan->from << 40 | index;
}

static uint64_t key_of(uint64_t index)
{
	return mixed(seed) ^ index;
}

static struct op *new_op(enum step step, uint64_t index, const struct plan *plan, size_t size)
{
	struct op *op = calloc(1, sizeof(*op) + size);

	CHECK(op, "no memory");
	op->step = step;
	op->index = index;
	op->plan = *plan;
	op->size = size;
	outstanding++;
	return op;
}

static void end_op(struct op *op)
{
	outstanding--;
	/* Late accesses find other bytes. */
	memset(op->data, 0xdb, op->size);
	free(op);
}

static void poll_queue(void);
static void serve(int all);

/* Calls until the provider accepts. */
#define POST(call)                                                                            \
	do {                                                                                  \
		ssize_t result_;                                                              \
		while ((result_ = (call)) == -FI_EAGAIN)                                      \
			poll_queue();                                                         \
		CHECK(result_ == 0, "%s is %zd (%s)", #call, result_, fi_strerror(-(int) result_)); \
	} while (0)

#include "random_messages.h"
#include "random_access.h"

static void completed(struct op *op, const struct fi_cq_tagged_entry *entry)
{
	switch (op->step) {
	case SEND:
		sent++;
		end_op(op);
		break;
	case RECEIVE:
	case TAKE:
		message_received(op, entry, 0);
		break;
	case BUFFER:
		buffer_filled(op, entry);
		break;
	case LOOK:
		message_found(op, entry);
		break;
	case CANCEL:
		FAIL("message %" PRIx64 " for a receive that nothing matches", entry->tag);
	case WRITING:
		written_out(op);
		break;
	case READING:
		read_back(op, entry);
		break;
	case ADD:
	case COMPARE:
		atomic_done(op);
		break;
	}
}

static void failed(void)
{
	struct fi_cq_err_entry error = { 0 };

	CHECK(fi_cq_readerr(cq, &error, 0) == 1, "no error");
	struct op *op = error.op_context;
	CHECK(op, "operation without context has failed: %s", fi_strerror(error.err));
	if (error.err == FI_ETRUNC && op->step == RECEIVE && op->size < op->plan.length) {
		CHECK(error.len == op->size && error.olen == op->plan.length - op->size, "cut to %zu, %zu", error.len, error.olen);
		struct fi_cq_tagged_entry entry = { .flags = error.flags, .len = error.len, .tag = error.tag, .data = error.data };
		message_received(op, &entry, 1);
	} else if (error.err == FI_ECANCELED && (op->step == CANCEL || (op->step == BUFFER && is_done))) {
		CHECK(op->step == BUFFER || !(error.flags & FI_MULTI_RECV), "flags of a cancelled receive: %#" PRIx64, error.flags);
		failed_receives++;
		end_op(op);
	} else if (error.err == FI_ENOMSG && op->step == LOOK) {
		op->next = peeks;
		peeks = op;
	} else {
		FAIL("operation %" PRIu64 " of kind %d, step %d: %s", op->index, op->plan.kind, op->step,
		     fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0));
	}
}

/* Reads completions. */
static void poll_queue(void)
{
	struct fi_cq_tagged_entry entries[8];
	fi_addr_t sources[8];
	ssize_t count = mixed(at + sent) % 16 == 0 && outstanding > 0 ? fi_cq_sreadfrom(cq, entries, 8, sources, NULL, 1)
								      : fi_cq_readfrom(cq, entries, 8, sources);

	if (count == -FI_EAVAIL)
		failed();
	else if (count != -FI_EAGAIN)
		CHECK(count > 0, "reading completions: %s", fi_strerror((int) -count));
	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].flags & FI_REMOTE_WRITE) {
			access_arrived(&entries[i]);
			continue;
		}
		struct op *op = entries[i].op_context;
		if (entries[i].flags & FI_RECV)
			CHECK(sources[i] == (fi_addr_t) sender_of(op, &entries[i]), "source %" PRIu64, sources[i]);
		completed(op, &entries[i]);
	}
	if (count == -FI_EAGAIN)
		sched_yield();
}

/* Posts what was delayed, and looks for messages again. */
static void serve(int all)
{
	struct op *op;

	while ((op = delayed) && (all || mixed(at ^ orders) % 4 == 0)) {
		delayed = op->next;
		post_delayed(op);
	}
	if ((op = peeks)) {
		peeks = op->next;
		look(op);
	}
	poll_queue();
}

static void barrier(void)
{
	uint64_t round = shared->arrived[rank] + 1;

	store(&shared->arrived[rank], round);
	for (int other = 0; other < RANKS; other++)
		while (load(&shared->arrived[other]) < round)
			serve(1);
}

static void wait_for_slowest(void)
{
	for (int other = 0; other < RANKS; other++)
		while (load(&shared->position[other]) + AHEAD < at)
			serve(1);
}

static void check_end(void)
{
	uint64_t data = 0, adds = 0, fetches = 0, fetched = 0;
	struct fi_cq_tagged_entry entry;

	for (int other = 0; other < RANKS; other++) {
		data += shared->writes_with_data[other][rank];
		adds += shared->adds[other][rank];
		fetches += shared->fetches[other][rank];
		fetched += shared->fetched[other][rank];
	}
	while (written < data || untagged_done < untagged_expected)
		serve(1);
	barrier();
	is_done = 1;
	cancel_buffers();
	while (outstanding > 0)
		serve(1);
	CHECK(written == data, "%" PRIu64 " writes with data, not %" PRIu64, written, data);
	uint64_t *sums = (uint64_t *) (memory + ATOMICS);
	while (load(&sums[0]) < adds)
		serve(1);
	CHECK(sums[0] == adds && sums[1] == fetches, "sums %" PRIu64 ", %" PRIu64, sums[0], sums[1]);
	CHECK(fetches == 0 || fetched == fetches * (fetches - 1) / 2, "sum of the fetched values: %" PRIu64, fetched);
	check_order(wild, wilds);
	check_order(untagged, untaggeds);
	while (fi_cntr_read(sends) < sent || fi_cntr_read(writes) < was_written)
		serve(1);
	CHECK(fi_cntr_read(sends) == sent, "%" PRIu64 " sends counted, not %" PRIu64, fi_cntr_read(sends), sent);
	CHECK(fi_cntr_read(receives) == received, "%" PRIu64 " receives counted, not %" PRIu64, fi_cntr_read(receives), received);
	CHECK(fi_cntr_readerr(receives) == failed_receives, "%" PRIu64 " failed, not %" PRIu64, fi_cntr_readerr(receives), failed_receives);
	CHECK(fi_cntr_read(reads) == was_read, "%" PRIu64 " reads counted, not %" PRIu64, fi_cntr_read(reads), was_read);
	CHECK(fi_cntr_read(writes) == was_written, "%" PRIu64 " writes counted, not %" PRIu64, fi_cntr_read(writes), was_written);
	CHECK(fi_cntr_readerr(sends) + fi_cntr_readerr(reads) + fi_cntr_readerr(writes) == 0, "operations have failed");
	barrier();
	CHECK(fi_cq_read(cq, &entry, 1) == -FI_EAGAIN, "a completion is left");
}

static enum fi_progress mode;

static void alarmed(int number)
{
	(void) number;
	printf("rank %d hangs: at %" PRIu64 ", %d in progress, untagged %" PRIu64 " of %" PRIu64 ", delayed %d, peeks %d\n", rank, at, outstanding,
	       untagged_done, untagged_expected, delayed != NULL, peeks != NULL);
	_exit(1);
}

static void body(void)
{
	size_t min = MAX_UNTAGGED;

	signal(SIGALRM, alarmed);
	alarm(30 + (unsigned) (operations / 2000));
	open_endpoint(mode);
	OK(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)));
	memory = calloc(1, MEMORY);
	wild = calloc(operations, sizeof(*wild));
	untagged = calloc(operations, sizeof(*untagged));
	CHECK(memory && wild && untagged, "no memory");
	OK(fi_mr_reg(domain, memory, MEMORY, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 100 + rank, 0, &mr, NULL));
	barrier();
	for (int other = 0; other < RANKS; other++)
		CHECK(fi_av_insert(av, shared->names[other], 1, NULL, 0, NULL) == 1, "address of rank %d", other);
	post_buffer();
	post_buffer();
	barrier();
	for (at = 0; at < operations; at++) {
		store(&shared->position[rank], at);
		wait_for_slowest();
		while (outstanding >= WINDOW)
			serve(1);
		struct plan plan = plan_of(at);
		if (plan.to == rank)
			expect(at, &plan);
		if (plan.from == rank)
			begin(at, &plan);
		if (mixed(at) % 4 == 0)
			serve(0);
	}
	store(&shared->position[rank], at);
	/* The buffers for untagged messages stay until all have come. */
	while (outstanding > 2)
		serve(1);
	barrier();
	check_end();
	OK(fi_close(&mr->fid));
	close_endpoint();
	free(memory);
	free(wild);
	free(untagged);
}

int main(int count, char **arguments)
{
	if (count != 4)
		return 2;
	setbuf(stdout, NULL);
	operations = strtoull(arguments[1], NULL, 10);
	seed = strtoull(arguments[2], NULL, 10);
	mode = strcmp(arguments[3], "auto") == 0 ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	if (!run_ranks(body))
		return 1;
	printf("%" PRIu64 " operations, seed %" PRIu64 ", %s progress\nok\n", operations, seed, arguments[3]);
	return 0;
}
