/* Access to memory of other ranks, of random.c. */

static uint64_t key_of_rank(int other)
{
	return 100 + (uint64_t) other;
}

/* Offset of this rank's slot in the memory of others. */
static uint64_t slot_at(size_t slot)
{
	return (uint64_t) rank * PART + slot * SLOT;
}

static uint64_t word_at(int writer, uint64_t index)
{
	return (uint64_t) writer * PART + SLOTS * SLOT + MAX_LENGTH + index % WORDS * 8;
}

/* A peer has written with immediate data: the data is there. */
static void access_arrived(const struct fi_cq_tagged_entry *entry)
{
	struct plan plan = plan_of(entry->data);

	CHECK(entry->flags & FI_REMOTE_CQ_DATA && plan.kind == WRITE && plan.to == rank, "write %" PRIu64 " is not for this rank", entry->data);
	if (plan.how % 4 == 0)
		CHECK(is_filled(memory + word_at(plan.from, entry->data), 8, key_of(entry->data)), "content of write %" PRIu64, entry->data);
	written++;
}

static void begin_write(uint64_t index, const struct plan *plan)
{
	if (plan->how % 4 == 0) {
		char word[8];
		fill(word, 8, key_of(index));
		/* Its end is noticed at the peer. */
		shared->writes_with_data[rank][plan->to]++;
		POST(fi_inject_writedata(ep, word, 8, index, plan->to, word_at(rank, index), key_of_rank(plan->to)));
		was_written++;
		return;
	}
	size_t slot = plan->length > SLOT ? SLOTS : index % SLOTS;
	while (is_busy[plan->to][slot])
		serve(1);
	is_busy[plan->to][slot] = 1;
	struct op *op = new_op(WRITING, index, plan, plan->length);
	op->slot = slot;
	fill(op->data, plan->length, key_of(index));
	uint64_t address = slot_at(slot), key = key_of_rank(plan->to);
	struct iovec range = { op->data, plan->length };
	struct fi_rma_iov remote = { address, plan->length, key };
	struct fi_msg_rma message = { .msg_iov = &range, .iov_count = 1, .addr = plan->to, .rma_iov = &remote, .rma_iov_count = 1, .context = op };
	if (plan->how % 4 == 1) {
		shared->writes_with_data[rank][plan->to]++;
		POST(fi_writedata(ep, op->data, plan->length, NULL, index, plan->to, address, key, op));
	} else if (plan->how % 4 == 2 && plan->length <= 3968) {
		POST(fi_writemsg(ep, &message, FI_INJECT | FI_COMPLETION | FI_DELIVERY_COMPLETE));
		memset(op->data, 0xdb, plan->length);
	} else {
		POST(fi_write(ep, op->data, plan->length, NULL, plan->to, address, key, op));
	}
}

/* Reads what was written. */
static void written_out(struct op *op)
{
	was_written++;
	op->step = READING;
	memset(op->data, 0, op->size);
	POST(fi_read(ep, op->data, op->size, NULL, op->plan.to, slot_at(op->slot), key_of_rank(op->plan.to), op));
}

static void read_back(struct op *op, const struct fi_cq_tagged_entry *entry)
{
	CHECK(entry->flags & FI_READ, "flags %#" PRIx64, entry->flags);
	CHECK(is_filled(op->data, op->size, key_of(op->index)), "content of write %" PRIu64 " at rank %d", op->index, op->plan.to);
	was_read++;
	is_busy[op->plan.to][op->slot] = 0;
	end_op(op);
}

static void begin_atomic(uint64_t index, const struct plan *plan)
{
	uint64_t key = key_of_rank(plan->to), one = 1;
	int how = plan->how % 4;

	if (how == 0) {
		shared->adds[rank][plan->to]++;
		POST(fi_inject_atomic(ep, &one, 1, plan->to, ATOMICS, key, FI_UINT64, FI_SUM));
		was_written++;
		return;
	}
	struct op *op;
	if (how < 3) {
		op = new_op(ADD, index, plan, 0);
		op->operand = 1;
		shared->fetches[rank][plan->to]++;
		POST(fi_fetch_atomic(ep, &op->operand, 1, NULL, &op->old, NULL, plan->to, ATOMICS + 8, key, FI_UINT64, FI_SUM, op));
		return;
	}
	/* A word of this rank's own, whose value is known. */
	while (has_word[plan->to])
		serve(1);
	has_word[plan->to] = 1;
	op = new_op(COMPARE, index, plan, 0);
	op->is_wrong = plan->how >> 2 & 1;
	op->compare = words[plan->to] ^ (uint64_t) op->is_wrong;
	op->operand = key_of(index);
	POST(fi_compare_atomic(ep, &op->operand, 1, NULL, &op->compare, NULL, &op->old, NULL, plan->to, ATOMICS + 16 + 8 * (uint64_t) rank, key,
			       FI_UINT64, FI_CSWAP, op));
}

static void atomic_done(struct op *op)
{
	was_read++;
	if (op->step == ADD) {
		shared->fetched[rank][op->plan.to] += op->old;
	} else {
		CHECK(op->old == words[op->plan.to], "word %" PRIx64 ", not %" PRIx64, op->old, words[op->plan.to]);
		if (!op->is_wrong)
			words[op->plan.to] = op->operand;
		has_word[op->plan.to] = 0;
	}
	end_op(op);
}

/* Cancels a receive that no message matches. */
static void begin_cancel(uint64_t index, const struct plan *plan)
{
	struct op *op = new_op(CANCEL, index, plan, 64);

	POST(fi_trecv(ep, op->data, 64, NULL, plan->how & 1 ? FI_ADDR_UNSPEC : (fi_addr_t) plan->to, tag_of(index, plan), 0, op));
	OK(fi_cancel(&ep->fid, op));
}

/* Begins an operation of this rank. */
static void begin(uint64_t index, const struct plan *plan)
{
	switch (plan->kind) {
	case WRITE:
		begin_write(index, plan);
		break;
	case ATOMIC:
		begin_atomic(index, plan);
		break;
	case CANCELLED:
		begin_cancel(index, plan);
		break;
	default:
		send_message(index, plan);
		break;
	}
}
