/* Program of a test: two endpoints of one process exchange data through simulated cards. Prints "ok" at its end. */
#include "pair.h"
#include <unistd.h>

#define LARGE (1 << 20)

static void messages(char *from, char *to, size_t length)
{
	for (size_t i = 0; i < length; i++)
		from[i] = (char) (i * 7 + length);
	EXPECT(fi_trecv(b.ep, to, LARGE, NULL, 0, 0x17, 0, to), 0);
	EXPECT(fi_tsenddata(a.ep, from, length, NULL, 99, 1, 0x17, from), 0);
	struct fi_cq_tagged_entry received = next(&b), sent = next(&a);
	EXPECT(sent.op_context == from, 1);
	EXPECT(received.op_context == to, 1);
	EXPECT(received.len, length);
	EXPECT(received.tag, 0x17);
	EXPECT(received.data, 99);
	EXPECT(memcmp(from, to, length), 0);
}

/* Injected messages that nobody receives yet, more than there are slots for copies. Their completion shows nowhere, so they do not wait for it. */
static void injected(void)
{
	struct fid_ep *alias = NULL;
	uint32_t number, received;
	ssize_t result;

	EXPECT(fi_ep_alias(a.ep, &alias, FI_TRANSMIT | FI_DELIVERY_COMPLETE), 0);
	alarm(120);
	for (number = 0; number < 2000; number++) {
		while ((result = fi_tinject(alias, &number, sizeof(number), 1, number)) == -FI_EAGAIN) {
			fi_cq_read(a.cq, NULL, 0);
			fi_cq_read(b.cq, NULL, 0);
		}
		EXPECT(result, 0);
	}
	while (number--) {
		EXPECT(fi_trecv(b.ep, &received, sizeof(received), NULL, 0, number, 0, &received), 0);
		EXPECT(next(&b).tag, number);
		EXPECT(received, number);
	}
	alarm(0);
	EXPECT(fi_close(&alias->fid), 0);
}

/* Returns a counter that was bound to a region: it outlives the endpoints. */
static struct fid_cntr *access_memory(char *local, char *remote)
{
	struct fid_mr *mr;
	struct fid_cntr *reads, *writes;
	struct fi_cntr_attr counts = { .events = FI_CNTR_EVENTS_COMP };
	uint64_t one = 1, old = 0;

	EXPECT(fi_mr_reg(domain, remote, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	uint64_t address = (uint64_t) remote, key = fi_mr_key(mr);
	EXPECT(fi_cntr_open(domain, &counts, &reads, NULL), 0);
	EXPECT(fi_cntr_open(domain, &counts, &writes, NULL), 0);
	EXPECT(fi_mr_bind(mr, &reads->fid, 0), -FI_EINVAL);
	EXPECT(fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ), 0);
	EXPECT(fi_mr_bind(mr, &writes->fid, FI_REMOTE_READ), -FI_EINVAL);
	EXPECT(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), 0);
	memset(remote, 0, LARGE);
	EXPECT(fi_write(a.ep, local, LARGE, NULL, 1, address, key, NULL), 0);
	EXPECT(next(&a).flags, FI_RMA | FI_WRITE);
	EXPECT(memcmp(local, remote, LARGE), 0);
	memset(local, 0, LARGE);
	EXPECT(fi_read(a.ep, local, LARGE, NULL, 1, address, key, NULL), 0);
	EXPECT(next(&a).flags, FI_RMA | FI_READ);
	EXPECT(memcmp(local, remote, LARGE), 0);
	memset(remote, 0, 8);
	for (uint64_t i = 0; i < 3; i++) {
		EXPECT(fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, 1, address, key, FI_UINT64, FI_SUM, NULL), 0);
		EXPECT(next(&a).flags, FI_ATOMIC | FI_READ);
		EXPECT(old, i);
	}
	EXPECT(fi_cntr_wait(writes, 1, 5000), 0);
	EXPECT(fi_cntr_wait(reads, 4, 5000), 0);
	EXPECT(fi_cntr_read(writes), 1);
	EXPECT(fi_close(&writes->fid), -FI_EBUSY);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&writes->fid), 0);

	/* The region is gone. */
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	EXPECT(fi_write(a.ep, local, 8, NULL, 1, address, key, local), 0);
	ssize_t count;
	while ((count = fi_cq_read(a.cq, &entry, 1)) == -FI_EAGAIN)
		fi_cq_read(b.cq, NULL, 0);
	EXPECT(count, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(a.cq, &error, 0), 1);
	EXPECT(error.err, FI_EKEYREJECTED);
	EXPECT(error.op_context == local, 1);
	return reads;
}

int main(void)
{
	char *from = malloc(LARGE), *to = malloc(LARGE);

	setbuf(stdout, NULL);
	open_pair(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT);
	messages(from, to, 0);
	messages(from, to, 100);
	messages(from, to, 5000);
	messages(from, to, LARGE);
	injected();
	struct fid_cntr *counter = access_memory(from, to);
	EXPECT(fi_close(&a.ep->fid), 0);
	EXPECT(fi_close(&b.ep->fid), 0);
	EXPECT(fi_cntr_read(counter), 4);
	EXPECT(fi_close(&counter->fid), 0);
	close_pair();
	free(from);
	free(to);
	printf("ok\n");
	return 0;
}
