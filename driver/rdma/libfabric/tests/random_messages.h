/* Messages of random.c. */

static struct op *buffers[2];
static uint64_t buffer_count;

static int sender_of(const struct op *op, const struct fi_cq_tagged_entry *entry)
{
	if (op->step == BUFFER)
		return plan_of(entry->data).from;
	return op->plan.kind == WILD ? plan_of(entry->tag & 0xffffffffff).from : op->plan.from;
}

static void note(struct match *matches, size_t number, uint64_t order, uint64_t index, const struct plan *plan)
{
	matches[number] = (struct match) { .order = order, .index = index, .from = plan->from, .lane = plan->kind == WILD ? plan->lane : 0 };
}

static int compare_matches(const void *a, const void *b)
{
	const struct match *first = a, *second = b;
	return (first->order > second->order) - (first->order < second->order);
}

/* Messages of one sender have matched in the order in which they were sent. */
static void check_order(struct match *matches, size_t count)
{
	uint64_t last[RANKS][LANES] = { 0 };

	qsort(matches, count, sizeof(*matches), compare_matches);
	for (size_t i = 0; i < count; i++) {
		uint64_t *before = &last[matches[i].from][matches[i].lane];
		CHECK(matches[i].index + 1 > *before, "message %" PRIu64 " of rank %d after %" PRIu64, matches[i].index, matches[i].from, *before - 1);
		*before = matches[i].index + 1;
	}
}

static void post_buffer(void)
{
	struct plan plan = { .kind = UNTAGGED };
	struct op *op = new_op(BUFFER, 0, &plan, BUFFER_SIZE);
	struct iovec range = { op->data, BUFFER_SIZE };
	struct fi_msg message = { .msg_iov = &range, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = op };

	op->order = buffer_count++ << 32;
	buffers[buffers[0] != NULL] = op;
	POST(fi_recvmsg(ep, &message, FI_MULTI_RECV | FI_COMPLETION));
}

static void cancel_buffers(void)
{
	for (int i = 0; i < 2; i++)
		OK(fi_cancel(&ep->fid, buffers[i]));
}

/* A message is in a buffer for several ones. */
static void buffer_filled(struct op *op, const struct fi_cq_tagged_entry *entry)
{
	struct plan plan = plan_of(entry->data);
	size_t offset = (char *) entry->buf - op->data;

	CHECK(entry->flags & FI_REMOTE_CQ_DATA, "flags %#" PRIx64, entry->flags);
	CHECK(plan.kind == UNTAGGED && plan.to == rank, "message %" PRIu64 " is not for this rank", entry->data);
	CHECK(entry->len == plan.length && offset <= BUFFER_SIZE && offset + entry->len <= BUFFER_SIZE, "length %zu at %zu", entry->len, offset);
	CHECK(is_filled(entry->buf, entry->len, key_of(entry->data)), "content of message %" PRIu64, entry->data);
	/* Empty messages have the place of the next one. */
	if (entry->len > 0)
		note(untagged, untaggeds++, op->order + offset, entry->data, &plan);
	untagged_done++;
	received++;
	if (entry->flags & FI_MULTI_RECV) {
		if (buffers[0] == op)
			buffers[0] = buffers[1];
		buffers[1] = NULL;
		end_op(op);
		post_buffer();
	}
}

static void message_received(struct op *op, const struct fi_cq_tagged_entry *entry, int is_cut)
{
	uint64_t index = op->index;
	struct plan plan = op->plan;

	if (plan.kind == WILD) {
		index = entry->tag & 0xffffffffff;
		plan = plan_of(index);
		CHECK(plan.kind == WILD && plan.to == rank && plan.lane == op->plan.lane, "message %" PRIu64 " has come to %" PRIu64, index, op->index);
		note(wild, wilds++, op->order, index, &plan);
	}
	CHECK(entry->tag == tag_of(index, &plan), "tag %" PRIx64 " of message %" PRIu64, entry->tag, index);
	if (!is_cut)
		CHECK(entry->len == plan.length, "%zu bytes of message %" PRIu64 ", not %zu", entry->len, index, plan.length);
	CHECK(is_filled(op->data, entry->len, key_of(index)), "content of message %" PRIu64, index);
	CHECK(!(entry->flags & FI_REMOTE_CQ_DATA) || entry->data == index, "data %" PRIu64 " of message %" PRIu64, entry->data, index);
	if (is_cut)
		failed_receives++;
	else
		received++;
	end_op(op);
}

static void post_delayed(struct op *op)
{
	POST(fi_trecv(ep, op->data, op->size, NULL, FI_ADDR_UNSPEC, tag_of(op->index, &op->plan), 0, op));
}

/* Looks for a message: 0 only looks, 1 claims, 2 drops it. */
static void look(struct op *op)
{
	struct fi_msg_tagged message = { .addr = FI_ADDR_UNSPEC, .tag = tag_of(op->index, &op->plan), .context = op };
	static const uint64_t flags[3] = { FI_PEEK, FI_PEEK | FI_CLAIM, FI_PEEK | FI_DISCARD };

	POST(fi_trecvmsg(ep, &message, flags[op->plan.how % 3] | FI_COMPLETION));
}

static void message_found(struct op *op, const struct fi_cq_tagged_entry *entry)
{
	int how = op->plan.how % 3;

	CHECK(entry->tag == tag_of(op->index, &op->plan) && entry->len == op->plan.length, "found message %" PRIx64, entry->tag);
	if (how == 2) {
		end_op(op);
		return;
	}
	op->step = TAKE;
	struct iovec range = { op->data, op->size };
	struct fi_msg_tagged message = { .msg_iov = &range, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = entry->tag, .context = op };
	POST(fi_trecvmsg(ep, &message, (how == 1 ? FI_CLAIM : 0) | FI_COMPLETION));
}

/* Prepares for a message to this rank. */
static void expect(uint64_t index, const struct plan *plan)
{
	uint64_t tag = tag_of(index, plan);
	struct op *op;

	switch (plan->kind) {
	case DIRECTED: {
		/* One in 16 is too long for its buffer. */
		size_t size = plan->how >> 4 == 0 ? plan->length / 2 : plan->length;
		op = new_op(RECEIVE, index, plan, size);
		if (plan->how & 1) {
			size_t half = size / 3;
			struct iovec ranges[2] = { { op->data, half }, { op->data + half, size - half } };
			POST(fi_trecvv(ep, ranges, NULL, 2, plan->from, tag, 0, op));
		} else {
			POST(fi_trecv(ep, op->data, size, NULL, plan->from, tag, 0, op));
		}
		break;
	}
	case WILD:
		op = new_op(RECEIVE, index, plan, plan->lane ? 20000 : 256);
		op->order = orders++;
		POST(fi_trecv(ep, op->data, op->size, NULL, FI_ADDR_UNSPEC, tag, 0xffffffffffff, op));
		break;
	case EXACT:
		op = new_op(RECEIVE, index, plan, plan->length);
		op->next = delayed;
		delayed = op;
		break;
	case UNTAGGED:
		untagged_expected++;
		break;
	case PEEKED:
		op = new_op(LOOK, index, plan, plan->length);
		look(op);
		break;
	default:
		break;
	}
}

/* Sends a message. */
static void send_message(uint64_t index, const struct plan *plan)
{
	struct op *op = new_op(SEND, index, plan, plan->length);
	uint64_t tag = tag_of(index, plan);
	size_t part = plan->length / 4;
	char *data = op->data;
	struct iovec ranges[4] = { { data, part }, { data + part, part }, { data + 2 * part, part }, { data + 3 * part, plan->length - 3 * part } };
	int how = plan->how % 8, is_small = plan->length <= 3968, is_tagged = plan->kind != UNTAGGED;
	uint64_t flags = FI_COMPLETION | (plan->how & 8 ? FI_DELIVERY_COMPLETE : 0) | (is_small && plan->how & 16 ? FI_INJECT : 0);

	fill(data, plan->length, key_of(index));
	if (how < 2 && is_small) {
		if (!is_tagged)
			POST(fi_injectdata(ep, data, plan->length, index, plan->to));
		else if (how == 0)
			POST(fi_tinject(ep, data, plan->length, plan->to, tag));
		else
			POST(fi_tinjectdata(ep, data, plan->length, index, plan->to, tag));
		sent++;
		end_op(op);
	} else if (how < 4) {
		struct fi_msg_tagged tagged = { .msg_iov = ranges, .iov_count = 4, .addr = plan->to, .tag = tag, .context = op, .data = index };
		struct fi_msg plain = { .msg_iov = ranges, .iov_count = 4, .addr = plan->to, .context = op, .data = index };
		if (is_tagged)
			POST(fi_tsendmsg(ep, &tagged, flags | (plan->how & 32 ? FI_REMOTE_CQ_DATA : 0)));
		else
			POST(fi_sendmsg(ep, &plain, flags | FI_REMOTE_CQ_DATA));
		/* Injected data may change at once. */
		if (flags & FI_INJECT)
			memset(data, 0xdb, plan->length);
	} else if (!is_tagged) {
		POST(fi_senddata(ep, data, plan->length, NULL, index, plan->to, op));
	} else if (how < 6) {
		POST(fi_tsenddata(ep, data, plan->length, NULL, index, plan->to, tag, op));
	} else {
		POST(fi_tsend(ep, data, plan->length, NULL, plan->to, tag, op));
	}
}
