/* Program of a test: objects of a process in its children after fork(), which are refused and change nothing for the parent. Prints "ok" at
 * its end. */
#include "pair.h"
#include <sys/wait.h>
#include <unistd.h>

#define REFUSED(call) EXPECT(call, -FI_EOPBADSTATE)

enum { LENGTH = 1 << 16, CHILDREN = 4 };

static struct fid_mr *mr;
static struct fid_cntr *counter;
static char from[LENGTH], to[LENGTH], window[LENGTH];

/* A child that uses everything, and ends as a program does. */
static void child(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_attr cq_attr = { 0 };
	struct fi_av_attr av_attr = { 0 };
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *other;
	struct fid_mr *memory;
	char name[FI_NAME_MAX];
	size_t length = sizeof(name);

	alarm(60);
	REFUSED(fi_tsend(a.ep, from, LENGTH, NULL, 1, 7, NULL));
	REFUSED(fi_trecv(b.ep, to, LENGTH, NULL, 0, 7, 0, NULL));
	REFUSED(fi_write(a.ep, from, LENGTH, NULL, 1, (uint64_t) window, fi_mr_key(mr), NULL));
	REFUSED(fi_cq_read(a.cq, &entry, 1));
	REFUSED(fi_cq_sread(b.cq, &entry, 1, NULL, -1));
	REFUSED(fi_cq_readerr(a.cq, &error, 0));
	REFUSED(fi_cntr_wait(counter, 1 << 20, -1));
	REFUSED(fi_cancel(&b.ep->fid, to));
	REFUSED(fi_getname(&a.ep->fid, name, &length));
	REFUSED(fi_av_insert(av, name, 1, NULL, 0, NULL));
	REFUSED(fi_endpoint(domain, info, &ep, NULL));
	REFUSED(fi_cq_open(domain, &cq_attr, &cq, NULL));
	REFUSED(fi_av_open(domain, &av_attr, &other, NULL));
	REFUSED(fi_mr_reg(domain, from, LENGTH, FI_REMOTE_READ, 0, 0, 0, &memory, NULL));
	REFUSED(fi_close(&a.ep->fid));
	REFUSED(fi_close(&b.ep->fid));
	REFUSED(fi_close(&a.cq->fid));
	REFUSED(fi_close(&counter->fid));
	REFUSED(fi_close(&mr->fid));
	REFUSED(fi_close(&av->fid));
	REFUSED(fi_close(&domain->fid));
	REFUSED(fi_close(&fabric->fid));
	/* The provider works in the child. */
	struct fi_info *found;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, info, &found), 0);
	struct fid_fabric *own;
	EXPECT(fi_fabric(found->fabric_attr, &own, NULL), 0);
	EXPECT(fi_close(&own->fid), 0);
	exit(0);
}

int main(void)
{
	struct fi_cntr_attr counts = { .events = FI_CNTR_EVENTS_COMP };

	open_pair(FI_MSG | FI_TAGGED | FI_RMA);
	EXPECT(fi_cntr_open(domain, &counts, &counter, NULL), 0);
	EXPECT(fi_mr_reg(domain, window, LENGTH, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	for (int n = 0; n < CHILDREN; n++) {
		int status = -1;

		memset(from, n + 1, LENGTH);
		EXPECT(fi_trecv(b.ep, to, LENGTH, NULL, 0, 7, 0, to), 0);
		EXPECT(fi_tsend(a.ep, from, LENGTH, NULL, 1, 7, from), 0);
		fflush(NULL);
		pid_t process = fork();
		if (process == 0)
			child();
		EXPECT(waitpid(process, &status, 0), process);
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, 1);
		next(&b);
		next(&a);
		EXPECT(memcmp(from, to, LENGTH), 0);
		EXPECT(fi_write(a.ep, from, LENGTH, NULL, 1, (uint64_t) window, fi_mr_key(mr), NULL), 0);
		next(&a);
		EXPECT(memcmp(from, window, LENGTH), 0);
	}
	EXPECT(fi_close(&a.ep->fid), 0);
	EXPECT(fi_close(&b.ep->fid), 0);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&counter->fid), 0);
	close_pair();
	printf("ok\n");
	return 0;
}
